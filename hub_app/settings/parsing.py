"""The environment into `Settings`, or every problem at once. Pure: reads nothing but what it is given."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hub_app.settings.fields import FIELDS, PREFIX, Field
from hub_app.settings.model import Entry, Kek, RateLimit, Settings
from hub_app.settings.readers import Refused, key_bytes
from hub_app.settings.relations import RELATIONS

VALUE_CHARS_MAX: Final = 80
HIDDEN: Final = "(hidden)"


class SettingProblem(NamedTuple):
    """One reason not to start. `value_shown` is cut and never a secret; `detail` says what would be accepted."""

    name: str
    value_shown: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}={self.value_shown}: {self.detail}"


def parse(
    environ: Mapping[str, str], *, hostname: str = "localhost", terminal: bool = False
) -> Settings | tuple[SettingProblem, ...]:
    """`hostname` stands in the advertised URL of a worker that listens on every address; `terminal` chooses the log
    format when none is set. An empty variable counts as not set."""
    is_local = (environ.get(PREFIX + "ENV") or "local") == "local"
    values: dict[str, Any] = {}
    problems: list[SettingProblem] = []
    for field in FIELDS:
        text = environ.get(field.variable) or _default(field, is_local)
        value = field.read(text)
        if isinstance(value, Refused):
            problems.append(SettingProblem(field.variable, _shown(field, text), f"expected {value.accepted}"))
        else:
            values[field.attribute] = value
    keks = _keks(environ, values, problems)
    problems.extend(_broken_relations(environ, values, is_local))
    if problems:
        order = {field.variable: place for place, field in enumerate(FIELDS)}
        return tuple(sorted(problems, key=lambda problem: order[problem.name]))
    derived = _derive(values, hostname, terminal)
    return _assemble(values, keks, _entries(environ, is_local, derived), _warnings(environ, values, keks))


def _default(field: Field, is_local: bool) -> str:
    return field.in_local if is_local and field.in_local is not None else field.default


def _shown(field: Field, text: str) -> str:
    if field.secret:
        return HIDDEN if text else ""
    if field.attribute == "kek_ref" and isinstance(field.read(text), Refused):
        return HIDDEN  # somebody may have put the key where its name belongs
    cut = text if len(text) <= VALUE_CHARS_MAX else text[:VALUE_CHARS_MAX] + "…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def _keks(environ: Mapping[str, str], values: Mapping[str, Any], problems: list[SettingProblem]) -> tuple[Kek, ...]:
    """The keys that KEK_REF names, in order, then DEV_KEK."""
    keks: list[Kek] = []
    for name in values.get("kek_ref", ()):
        text = environ.get(name, "")
        key = key_bytes(text)
        if key is None:
            state = "does not hold 32 bytes in base64" if text else "is not set"
            problems.append(SettingProblem(PREFIX + "KEK_REF", name, f"the variable {name} {state}"))
        else:
            keks.append(Kek(name=name, key=key))
    if values.get("dev_kek"):
        keks.append(Kek(name=PREFIX + "DEV_KEK", key=values["dev_kek"]))
    return tuple(keks)


def _broken_relations(environ: Mapping[str, str], values: Mapping[str, Any], is_local: bool) -> list[SettingProblem]:
    fields = {field.name: field for field in FIELDS}
    problems = []
    for relation in RELATIONS:
        if not all(need in values for need in relation.needs):
            continue
        detail = relation.broken(values)
        if detail is not None:
            field = fields[relation.name]
            text = environ.get(field.variable) or _default(field, is_local)
            problems.append(SettingProblem(field.variable, _shown(field, text), detail))
    return problems


def _derive(values: dict[str, Any], hostname: str, terminal: bool) -> dict[str, str]:
    """Fills what follows from other settings into `values`; returns attribute → value of what was filled."""
    derived = {}
    host, port = values["http_listen"]
    if not values["http_advertised_url"]:
        reachable = hostname if host in ("0.0.0.0", "::") else host
        derived["http_advertised_url"] = (
            f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
        )
    if not values["log_format"]:
        derived["log_format"] = "console" if terminal else "json"
    values.update(derived)
    return derived


def _entries(environ: Mapping[str, str], is_local: bool, derived: Mapping[str, str]) -> tuple[Entry, ...]:
    entries = []
    for field in FIELDS:
        given = environ.get(field.variable, "")
        source = "environment" if given else "derived" if field.attribute in derived else "default"
        value = _shown(field, given or derived.get(field.attribute) or _default(field, is_local))
        entries.append(Entry(name=field.variable, value=value, source=source, meaning=field.meaning))
    return tuple(entries)


def _warnings(environ: Mapping[str, str], values: Mapping[str, Any], keks: tuple[Kek, ...]) -> tuple[str, ...]:
    found = [_unknown(name) for name in sorted(environ) if _is_unknown(name, values)]
    if values["kafka_scram_mechanism"] and not values["kafka_scram_username"]:
        found.append(f"{PREFIX}KAFKA_SCRAM_MECHANISM has no effect without a user")
    if values["kafka_ca_cert"] and not values["kafka_tls_enabled"]:
        found.append(f"{PREFIX}KAFKA_CA_CERT has no effect without {PREFIX}KAFKA_TLS_ENABLED")
    if values["env"] != "local" and not values["kafka_tls_enabled"]:
        found.append("Kafka is spoken to in plain text")
    if values["env"] != "local" and values["allow_private_sinks"]:
        found.append(f"{PREFIX}ALLOW_PRIVATE_SINKS lets tenants reach private addresses from here")
    if not keks:
        found.append(f"no key in {PREFIX}KEK_REF: webhook subscriptions cannot be created, and nothing can be signed")
    return tuple(found)


def _is_unknown(name: str, values: Mapping[str, Any]) -> bool:
    known = {field.variable for field in FIELDS}
    return name.startswith(PREFIX) and name not in known and name not in values["kek_ref"]


def _unknown(name: str) -> str:
    known = {field.variable: field for field in FIELDS}
    bare = name.removeprefix(PREFIX)
    if bare in known:
        return f"{name} has no effect: this setting is named {bare}, without the prefix"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else "")


def _assemble(
    values: Mapping[str, Any], keks: tuple[Kek, ...], entries: tuple[Entry, ...], warnings: tuple[str, ...]
) -> Settings:
    composed: dict[str, Any] = {"keks": keks, "entries": entries, "warnings": warnings}
    composed["http_host"], composed["http_port"] = values["http_listen"]
    for limit in ("rate_limit", "rate_limit_writes", "rate_limit_reads"):
        composed[limit] = RateLimit(requests_max=values[f"{limit}_max"], window_s=values[f"{limit}_window_s"])
    simple = {field.name for field in dataclasses.fields(Settings)} - composed.keys()
    return Settings(**{name: values[name] for name in simple}, **composed)
