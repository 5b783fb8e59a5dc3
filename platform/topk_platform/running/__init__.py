"""Studies on Ray. Read ``loop`` first: it leads from a study to its tables.

- ``options`` are what a run is asked for;
- ``tuning`` starts Ray Tune, ``searcher`` links it to the study's board, ``trainable`` and ``worker`` train;
- ``state`` reads what counts from the ledger, ``recording`` keeps records, ``summary`` says how a run ended;
- ``plan`` says what is left and how long it takes; ``preflight`` checks all that can be checked before a worker starts;
- ``cluster`` reaches a Ray cluster, ``own_ray`` starts a Ray on this machine, ``machine`` reads what a machine offers;
- ``progress`` shows how a running study is doing.

Import these modules one by one, because Ray and torch take seconds.
"""
