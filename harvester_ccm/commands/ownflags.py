"""The flags that only commands have."""

from __future__ import annotations

from typing import Final

from harvester_ccm.flags import Flag, Group, Kind

OUTPUT: Final = Flag(
    "output",
    Kind.TEXT,
    "",
    Group.GENERAL,
    "Form of the answer: text for people, json for scripts. Without it: text, and json for explain service -f.",
    shorthand="o",
)
FILENAME: Final = Flag(
    "filename",
    Kind.WORDS,
    "",
    Group.GENERAL,
    "File with objects as YAML or JSON: one object, several documents, or a List; - is the standard input. May be "
    "given more than once. With it no cluster is asked.",
    shorthand="f",
)
NAMESPACE: Final = Flag(
    "namespace",
    Kind.TEXT,
    "",
    Group.GENERAL,
    "Namespace in Harvester of the VMs and load balancers. Without it: that of the cloud-config's context, with files "
    "that of the objects.",
    shorthand="n",
)
WAITED: Final = Flag(
    "waited",
    Kind.DURATION,
    "0s",
    Group.GENERAL,
    "Time for which the Service is taken to have been in its present state, for rules with a time limit. Without it: "
    "the time since the creation or deletion in the clusters, 0s with files.",
)
CLUSTER: Final = Flag(
    "cluster",
    Kind.TEXT,
    "",
    Group.GENERAL,
    "Name of the guest cluster that is gone: what its --cluster-name was. Required.",
)
CLUSTER_UID: Final = Flag(
    "cluster-uid",
    Kind.TEXT,
    "",
    Group.GENERAL,
    "Only load balancers with this owner mark: the UID of the kube-system namespace of the cluster that is gone.",
)
YES: Final = Flag("yes", Kind.BOOL, "false", Group.GENERAL, "Do it; without it, it is only shown what would be done.")
FORCE: Final = Flag(
    "force", Kind.BOOL, "false", Group.GENERAL, "Do it in spite of the doubts that are listed; together with --yes."
)
