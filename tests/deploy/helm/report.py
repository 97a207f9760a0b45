"""``python -m tests.deploy.helm.report``: every variant, what it renders, and what the validators say.

Exit code 1 if one of them finds a fault.
"""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial

from tests.deploy.helm import validators
from tests.deploy.helm.chart import KUBERNETES, VARIANTS, Rendered, render

_WIDTHS = (21, 6, 10, 10, 7, 10)


def main() -> int:
    print(_line("variant", "lint", *(f"k8s {version}" for version in KUBERNETES), "CRDs", "promtool", "objects"))
    faults = [fault for variant in VARIANTS for fault in _report(variant)]
    print("", *faults, f"{len(VARIANTS)} variants, {len(faults)} faults", sep="\n")
    return min(len(faults), 1)


def _report(variant: str) -> list[str]:
    rendered = render(variant)
    checks: list[Callable[[], int | None]] = [
        partial(validators.lint, variant),
        *(partial(validators.kubernetes, rendered, version) for version in KUBERNETES),
        partial(validators.custom_resources, rendered),
        partial(validators.alert_rules, rendered),
    ]
    results, faults = [], []
    for check in checks:
        try:
            count = check()
            results.append("ok" if count is None else f"{count} ok" if count else "-")
        except Exception as error:
            results.append("FAULT")
            faults.append(f"{variant}: {error}")
    print(_line(variant, *results, _kinds(rendered)))
    return faults


def _kinds(rendered: Rendered) -> str:
    counts = Counter(each["kind"] for each in rendered.objects)
    return ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in sorted(counts.items()))


def _line(*cells: str) -> str:
    return "".join(cell.ljust(width) for cell, width in zip(cells, _WIDTHS, strict=False)) + cells[-1]


if __name__ == "__main__":
    sys.exit(main())
