"""``python -m core``, which is what ``sluicegate core`` becomes."""

from core.wire.first_process import end_at_sigterm

end_at_sigterm()

from core.cli import main  # noqa: E402

main(prog_name="sluicegate core")
