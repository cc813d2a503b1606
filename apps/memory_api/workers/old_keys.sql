-- A batch of idempotency keys from before a time.
with batch as materialized (
    select k.route, k.key from idempotency_keys k where k.tenant_id = :tenant and k.created_at < :before limit :many
)
delete from idempotency_keys d
using batch b
where d.tenant_id = :tenant and d.route = b.route and d.key = b.key
returning 1
