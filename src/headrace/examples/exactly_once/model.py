"""Payments, which must be booked once."""

from __future__ import annotations

from msgspec import Struct

from headrace import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KeyValueStore,
    StoreBuilder,
    Stores,
)
from headrace.examples.refuse_future import refuse_future


class Payment(Struct, rename="camel"):
    """A payment, with an id that its sender has given it."""

    payment_id: str
    cents: int


seen_ids: StoreBuilder[KeyValueStore[str, int]] = Stores.key_value("seen-ids", str, int, ttl="1d")


class CheckPayment(FixedKeyProcessor[str, Payment, Payment]):
    """Refuses a record that is no payment, or from the future; the dead letter says why."""

    def process(self, record: FixedKeyRecord[str, Payment]) -> None:
        if record.key is None or record.value is None:
            what = "account" if record.key is None else "payment"
            msg = f"The record has no {what}."
            raise ValueError(msg)
        refuse_future(record)
        self.context.forward(record)


class DropDuplicates(FixedKeyProcessor[str, Payment, Payment]):
    """Refuses a payment whose id it has seen within a day; the dead letter says so."""

    def stores(self) -> list[StoreBuilder[KeyValueStore[str, int]]]:
        return [seen_ids]

    def init(self, context: FixedKeyProcessorContext[str, Payment]) -> None:
        super().init(context)
        self.seen = context.get_state_store(seen_ids)

    def process(self, record: FixedKeyRecord[str, Payment]) -> None:
        payment_id = record.value.payment_id
        if self.seen.put_if_absent(payment_id, record.timestamp) is not None:
            msg = f"Payment {payment_id} is a duplicate."
            raise ValueError(msg)
        self.context.forward(record)
