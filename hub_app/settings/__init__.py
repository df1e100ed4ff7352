"""Everything a deployment can say, as one frozen value. `parse` judges what it is given, and reads nothing else."""

from hub_app.settings.model import Entry, Kek, RateLimit, Settings
from hub_app.settings.parsing import SettingProblem, parse
from hub_app.settings.readers import duration_ms

__all__ = [
    "Entry",
    "Kek",
    "RateLimit",
    "SettingProblem",
    "Settings",
    "duration_ms",
    "parse",
]
