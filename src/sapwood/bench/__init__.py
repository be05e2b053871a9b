"""The benchmarks: the experiments of the papers beside baselines that are measured in the same run.

    from sapwood.bench.harness.runner import Options
    from sapwood.bench.suites import FILTER, run_suite

    report = run_suite(FILTER, Options(quick=True))
    report.to_json()                                 # the figures; charts are in Options.out

Costs are multiples of raw expat parsing, measured in the same run, so that the speed of the machine and most
of its other load cancel out. Times are reported only beside the times of a paper.

`harness` runs experiments, isolates measurements in processes, and writes tables, JSON and charts.
`filter`, `transform`, `join`, `relational` and `spark` hold the experiments, one file for each subject.
`suites` lists them. Nothing else in Sapwood imports this package, apart from the command.
"""
