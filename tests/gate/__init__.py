"""What makes a verdict of the tests, for `.ci/run`.

    cases        which cases of a test it has
    events       a plugin of pytest (`--told=FOLDER`): writes each outcome as it comes, keeps what failed tests left
    outcomes     reads what was written, and decides what may be tried again
    __main__     tries it again, once and alone; says at the end what failed, and how many tests passed

A test of the outside world (Apache Kafka, Redis, ZooKeeper, Spark) may fail by the machine: it has a second chance. A
failed check of records has none, nor has a unit test, a worker that died, or a run that ended early.
"""
