"""The configuration: TOML text into classes that can't be wrong, errors that say where.

Two files, the user's over the system's. Tables are merged key by key, lists of tables (``[[rules]]``,
``[[hooks]]``) are appended, the system's first, anything else the user's replaces. ``[policy]`` may stand
only in the system's file: it is what users can't go beyond.

``model`` at the top is the default route, and ``[model]`` may stand beside it, which TOML itself would not
have: `reading` sees to that. The route may also be in that table, as ``default``.

- the sections, by family: `daemon`, `model`, `routes`, `sessions`, `budget`, `tools`, `hooks`, `policy`,
  made of `kinds` of values;
- `whole` puts them together: one field of `Config` for each; `checks` are what no section alone can know. A
  new section is a module, its field there, and its part of dshd-config(5);
- `reading` makes texts into it (`places`: where in a text a key stands), `files` knows the files.

Everything is a pure function of texts but `files`. Durations are seconds (float) once read; 0 means none
wherever a limit can be off.
"""

from dshd.config.budget import Budget as Budget
from dshd.config.daemon import Daemon as Daemon
from dshd.config.daemon import Driver as Driver
from dshd.config.daemon import Inbox as Inbox
from dshd.config.daemon import Recovery as Recovery
from dshd.config.files import environment as environment
from dshd.config.files import load as load
from dshd.config.hooks import Hook as Hook
from dshd.config.hooks import Notify as Notify
from dshd.config.model import Model as Model
from dshd.config.places import find_line as find_line
from dshd.config.policy import Policy as Policy
from dshd.config.reading import Source as Source
from dshd.config.reading import parse as parse
from dshd.config.routes import BUILT_IN_ROUTES as BUILT_IN_ROUTES
from dshd.config.routes import Price as Price
from dshd.config.routes import Route as Route
from dshd.config.sessions import Sessions as Sessions
from dshd.config.tools import Approval as Approval
from dshd.config.tools import Jobs as Jobs
from dshd.config.tools import Rule as Rule
from dshd.config.tools import Server as Server
from dshd.config.tools import Tools as Tools
from dshd.config.whole import Config as Config
