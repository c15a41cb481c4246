"""Templates, and how times, sizes and states look. Everything is escaped; no template says otherwise."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from a2a_gcs.console.security import csrf_secret, keep_csrf
from a2a_gcs.console.site import PATH, Visit
from a2a_gcs.workspaces.differences import shown

_UNITS = ("B", "KB", "MB", "GB", "TB")
_THOUSAND = 1000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def state_label(state: str) -> str:
    """A state as people say it."""
    return state.removeprefix("TASK_STATE_").lower().replace("_", " ") or "unknown"


def state_class(state: str) -> str:
    """A state as the style sheet names it."""
    return state_label(state).replace(" ", "-") if state.startswith("TASK_STATE_") else "unknown"


def size(number: float) -> str:
    """Bytes for people."""
    for unit in _UNITS[:-1]:
        if number < _THOUSAND:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"  # noqa: PLR2004
        number /= _THOUSAND
    return f"{number:.1f} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"


def moment(seconds: float) -> datetime | None:
    """Unix seconds as a time in UTC; None for what is none."""
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def printable(text: str) -> str:
    """A name for people: what is not printable, or would turn the text around it, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("a2a_gcs.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
    )
    made.filters |= {
        "state_label": state_label,
        "state_class": state_class,
        "size": size,
        "duration": duration,
        "moment": moment,
        "printable": printable,
        "line": shown,
    }
    return made


_TEMPLATES = _environment()


def bare_page(template: str, **values: Any) -> str:
    """A page that is for everybody."""
    return _TEMPLATES.get_template(template).render(static=f"{PATH}/static", **values)


def page(visit: Visit, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page of the console, with what its forms need."""
    secret = csrf_secret(visit.request)
    html = _TEMPLATES.get_template(template).render(
        visit=visit,
        site=visit.site,
        static=f"{PATH}/static",
        csrf=secret,
        owner=visit.request.scope["user"].display_name if "user" in visit.request.scope else "",
        **values,
    )
    response = HTMLResponse(html.encode("utf-8", "replace"), status_code=status)
    keep_csrf(response, visit.request, secret)
    return response
