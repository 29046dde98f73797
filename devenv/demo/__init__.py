"""The demo: a play in scenes, told in plain lines as it happens. Run it with ``python -m devenv.demo``.

A scene is an async function that takes the ``Play``, shows something by real requests, and raises ``Disappointment``
when it does not see what it expects. The order of the scenes is in ``performance``.
"""
