-- A batch of servings from before a time, by the index that lists them.
with batch as materialized (
    select v.render_id
    from scopes s
    cross join lateral (
        select o.render_id from servings o
        where o.tenant_id = :tenant and o.scope = s.scope and o.created_at < :before
        limit :many
    ) v
    where s.tenant_id = :tenant
    limit :many
)
delete from servings d
where d.tenant_id = :tenant and d.render_id = any(array(select render_id from batch))
returning 1
