"""The applications that ship with Headrace: ``headrace example`` lists and runs them.

Each has a folder:

* ``app.py``: the topology and ``app``, at most 150 lines; ``main.py`` if there is no topology;
* ``model.py``: the types of its records, if it has its own;
* ``feed.py``: ``TOPICS``, the input topics with their partition counts, and ``feed(seed=…)``;
* ``test_app.py``: tests on the test driver, bad input, and one ``test_end_to_end…`` in process;
* ``README.md`` and ``topology.svg``; ``make fix`` writes the picture, and the output of each
  command in a block ``console``.

``main.py`` has ``main(config: StreamsConfig) -> int``, which ``headrace example`` calls. An example
that needs several processes has both. A feed may have ``TRACED``, the number of the record that
``--trace`` follows.

A file imports its neighbours as ``from headrace.examples.NAME.model import …``;
``headrace example NAME --copy`` turns that into ``from model import …``.
"""
