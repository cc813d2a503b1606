-- A batch of idempotency keys from before a time.
delete from idempotency_keys d
using (
    select k.route, k.key from idempotency_keys k where k.tenant_id = :tenant and k.created_at < :before limit :many
) x
where d.tenant_id = :tenant and d.route = x.route and d.key = x.key
returning 1
