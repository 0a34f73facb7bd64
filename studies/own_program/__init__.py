"""What a program of one's own waits for, what a change to it gains, and what watching it costs."""

from helpers.parameters import Study, lazy_import

STUDY = Study(
    name="own-program",
    headline="gain-measured",
    by_name=("everyone",),
    fragments={
        "threads.md": lazy_import("studies.own_program.threads", "write_threads"),
        "example-program.md": lazy_import("studies.own_program.example_trace", "write_program"),
        "example-screen.md": lazy_import("studies.own_program.example_trace", "write_screen"),
        "race.md": lazy_import("studies.own_program.race", "write_race"),
        "example-waterfall.md": lazy_import("studies.own_program.example_trace", "write_waterfall"),
    },
)
