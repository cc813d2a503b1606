-- A batch of servings from before a time, oldest scope first: by the index that lists them.
delete from servings d
using (
    select v.render_id
    from scopes s
    cross join lateral (
        select o.render_id from servings o
        where o.tenant_id = :tenant and o.scope = s.scope and o.created_at < :before
        limit :many
    ) v
    where s.tenant_id = :tenant
    limit :many
) x
where d.tenant_id = :tenant and d.render_id = x.render_id
returning 1
