"""A collection of one object, for the controllers of the emulator alone."""

import copy

from devenv.watch import Document, key_of
from harvester_ccm.kube.errors import Answer, Conflict


class Shelf:
    """A collection: what is stored, and the copy of it that a controller reads."""

    def __init__(self, stored: Document) -> None:
        self.stored = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "1"}}
        self.seen = copy.deepcopy(self.stored)
        self.tried: list[Document] = []

    def get(self, key: str) -> Document | None:
        return self.seen if key == key_of(self.seen) else None

    def all(self) -> list[Document]:
        return [self.seen]

    async def put(self, document: Document) -> Document:
        self.tried.append(document)
        if document["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict(Answer(409, "Conflict", "the object has been modified"))
        version = str(int(self.stored["metadata"]["resourceVersion"]) + 1)
        self.stored = {**document, "metadata": {**document["metadata"], "resourceVersion": version}}
        return self.stored

    def catch_up(self) -> None:
        self.seen = copy.deepcopy(self.stored)
