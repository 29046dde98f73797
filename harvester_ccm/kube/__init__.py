"""Kubernetes for asyncio: a client, informers, work queues, a Lease with a write fence, and an Event recorder.

The package imports no other part of the program around it but ``netip`` and ``redaction``, and knows no object types
but the three that it writes itself (``builtin``): a program describes its own with ``objects.Model`` and
``objects.Resource``. A task group of the program runs ``Informer.run``, ``WorkQueue.run``, ``EventRecorder.run`` and
``LeaderElector.hold``. All durations are measured with the clock of the event loop.

What it guarantees; each line has a test with the marker ``kube``:

Client
* A failed request raises one error class by its meaning, and never an error of the HTTP library.
* A 404 counts as the absence of an object only if it is a Status that names the object or its namespace.
* A response, and a line of a watch, is read up to a limit.
* An object that cannot be decoded hides no other one of its list.

Informer
* The store has every change also after a watch that broke, expired, fell silent or was rejected.
* After an outage, the store is current within two seconds and a tenth of the time that the outage lasted.
* A server that was restored from a backup replaces the store, although its versions are older.
* An object that cannot be decoded is never removed from the store by that.
* The response to a write is in the store at once, and never replaces a newer object.
* A deletion that the watch has lost is found by a 404 of any request, and then by a list.
* A callback sees a list as a whole, never a store that is half filled.
* No error ends an informer: the store keeps its objects, and ``problem`` says why it may not be current.

Work queue
* A key is reconciled by one worker at a time, and again if it was enqueued meanwhile.
* A failed key is retried with backoff, or when the server asks for it.
* A reconcile that fails, even by a bug, does not stop the reconciles of other keys.
* Namespaces take turns: many keys of one namespace do not delay the keys of another.
* Keys of objects that changed come before the keys of a resync.
* Two writers that insist on different values of a field cause one write of it per interval.

Lease and write fence
* A Lease of another holder is taken only if it has not changed for its duration, whatever any clock says.
* No write is sent after the renew deadline of the Lease, also not by a process that was stopped meanwhile.
* Writes of a machine that was paused with its clocks end with its next renewal.
* A write that was sent is waited for before the Lease is released, even if its caller was cancelled.
* The Lease has client-go's form, and needs only the verbs get, create and update.

Events
* A Warning that holds is written again before the API server deletes it.
* Another equal Event on an object is written again only after 45 minutes in which it was not emitted.
* Emitting never waits: what exceeds the queue or the limit of an object is dropped and counted.
* An Event is written after a short outage of the API server.
* Namespaces take turns: many Events of one neither delay nor displace the Events of another.

Credentials
* Any kubeconfig is loaded, or causes a CredentialError that names its file.
* Tokens and certificates that are replaced are used without a restart.
* A credential that leads to another server, namespace or cluster raises ClusterReplaced.
"""
