"""A study's run, from its definition to its tables.

- ``loop`` runs a study: read it first, from top to bottom;
- a trial's way: ``dispatcher`` asks the protocol which one is next, ``tuner`` gives it to Ray Tune, ``trainable`` and
  ``worker`` train it, and ``recording`` hands its record to the ledger's writer before the next one is asked for;
- ``messages`` are what driver and worker tell each other;
- ``counted`` says what of the ledger counts, and ``limits`` holds the run's limits;
- ``plan`` says what a run would do;
- ``watching``, ``views`` and ``summary`` show a run;
- ``preflight`` checks a study before anything starts;
- ``cluster`` starts a Ray on this machine or joins a cluster, and checks its nodes.
"""
