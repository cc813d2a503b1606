-- A batch of budget reservations from before a time: no budget counts them any more.
with batch as materialized (
    select r.id from budget_reservations r where r.tenant_id = :tenant and r.created_at < :before limit :many
)
delete from budget_reservations d
where d.tenant_id = :tenant and d.id = any(array(select id from batch))
returning 1
