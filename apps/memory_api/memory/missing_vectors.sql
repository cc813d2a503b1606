-- Served memories of one scope that have a vector of one model and none of another, in the order of their numbers. OFFSET 0 keeps
-- the look for the other vector a probe by key: as a join it reads the whole scope for each row where statistics are not there yet.
select v.n, m.id, m.searchable_text, md5(m.searchable_text) said
from memory_vectors v
cross join lateral (
    select k.id, k.searchable_text from memories k
    where k.tenant_id = :tenant and k.n = v.n and k.status = 'active' limit 1
) m
where v.tenant_id = :tenant and v.scope = :scope and v.model = :source and v.n > :after
  and not exists (select from memory_vectors w
                  where w.tenant_id = :tenant and w.scope = :scope and w.model = :target and w.n = v.n offset 0)
order by v.n
limit :many
