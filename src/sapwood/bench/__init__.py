"""Experiments of the papers, side by side with baselines; nobody else imports this room.

    from sapwood.bench.filter import Options, run
    report = run(Options(quick=True))
    report.to_json()                       # the figures
    sapwood.bench.tables.tables(report)    # for a terminal; charts are in Options.out

Costs are multiples of raw expat parsing, measured in the same run: a machine's speed cancels out, and so does
most of what else it is doing at the time. Only where tables of a paper stand beside ours are there times.

`filter`, `transform`, `join`, `relational` and `spark` each know their experiments; `session` runs those of
any of them.
"""
