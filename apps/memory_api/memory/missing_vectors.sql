-- Served memories of one scope that have a vector of one model and none of another, in the order of their numbers.
select v.n, m.id, m.searchable_text, md5(m.searchable_text) said
from memory_vectors v
cross join lateral (
    select k.id, k.searchable_text from memories k
    where k.tenant_id = :tenant and k.n = v.n and k.status = 'active' limit 1
) m
where v.tenant_id = :tenant and v.scope = :scope and v.model = :source and v.n > :after
  and not exists (select from memory_vectors w
                  where w.tenant_id = :tenant and w.scope = :scope and w.model = :target and w.n = v.n)
order by v.n
limit :many
