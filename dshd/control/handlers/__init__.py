"""How each method is answered, by family; which method is whose is in `dshd.control.methods`."""
