-- name: add_to_totals
-- Adds amounts to totals. Locks the rows in the order of the arrays.
insert into budget_totals (
    tenant_id, period, starts_on, project_id, purpose, spent_usd, reserved_usd, spent_tokens, reserved_tokens
)
select cast(:tenant as uuid), c.*
from unnest(
    cast(:period as text[]), cast(:starts_on as date[]), cast(:project_id as text[]), cast(:purpose as text[]),
    cast(:spent_usd as numeric[]), cast(:reserved_usd as numeric[]), cast(:spent_tokens as bigint[]), cast(:reserved_tokens as bigint[])
) c
on conflict (tenant_id, period, starts_on, project_id, purpose) do update
set spent_usd = budget_totals.spent_usd + excluded.spent_usd,
    reserved_usd = budget_totals.reserved_usd + excluded.reserved_usd,
    spent_tokens = budget_totals.spent_tokens + excluded.spent_tokens,
    reserved_tokens = budget_totals.reserved_tokens + excluded.reserved_tokens
returning period, starts_on, project_id, purpose, spent_usd, reserved_usd, spent_tokens, reserved_tokens

-- name: settle_reservation
-- Replaces the amount of a reservation that is open or was settled because it expired. Returns it as it was.
update budget_reservations r
set amount_usd = cast(:usd as numeric), amount_tokens = :tokens, settled_at = now(), is_expired = false
from (
    select b.tenant_id, b.id, b.project_id, b.purpose, b.amount_usd, b.amount_tokens, b.is_expired, b.created_at
    from budget_reservations b
    where b.tenant_id = :tenant and b.id = :reservation and (b.settled_at is null or b.is_expired)
    for update
) before
where r.tenant_id = :tenant and r.id = before.id
returning before.project_id, before.purpose, before.amount_usd, before.amount_tokens, before.is_expired, before.created_at
