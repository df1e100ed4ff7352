"""Everything a deployment can say, as one frozen value. `parse` judges what it is given, and reads nothing else."""

from hub_app.settings.model import Entry, Kek, RateLimit, Settings
from hub_app.settings.parsing import SettingProblem, parse
from hub_app.settings.readers import duration_ms, duration_text
from hub_app.settings.relations import job_life_ms

__all__ = [
    "Entry",
    "Kek",
    "RateLimit",
    "SettingProblem",
    "Settings",
    "duration_ms",
    "duration_text",
    "job_life_ms",
    "parse",
]
