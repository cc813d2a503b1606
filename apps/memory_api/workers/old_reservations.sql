-- A batch of budget reservations from before a time: no budget counts them any more.
delete from budget_reservations d
using (
    select r.id from budget_reservations r where r.tenant_id = :tenant and r.created_at < :before limit :many
) x
where d.tenant_id = :tenant and d.id = x.id
returning 1
