"""Studies on Ray.

Import the modules of these folders one by one, because Ray and torch take seconds:

- ``driver`` trains what is missing of a study;
- ``cluster`` reaches a Ray cluster, ``own_ray`` starts a Ray on this machine, ``machine`` reads what a machine offers;
- ``progress`` shows how a running study is doing;
- ``estimate`` says what is left and how long it takes;
- ``preflight`` checks everything that can be checked before a worker starts.
"""
