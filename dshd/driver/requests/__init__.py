"""What the model is asked.

`request` makes a request of the surface and writes it down; `calling` is which model on which terms, and what
plugins make of the request, its stream and its failures; `prompting` what the model is told before anything
else; `counting` what is believed of the usage that it reports.
"""
