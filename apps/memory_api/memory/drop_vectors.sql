-- A batch of vectors that are searched no more: of memories that have one of the model that is, and of those not served at all.
-- A row that somebody is changing is left to the next round. MATERIALIZED: as part of the join the batch would be chosen again for
-- every row, and would be no batch; OFFSET 0: probes by key.
with batch as materialized (
    select v.n from memory_vectors v
    where v.tenant_id = :tenant and v.scope = :scope and v.model = :model and v.n > :after
      and (exists (select from memory_vectors w
                   where w.tenant_id = :tenant and w.scope = :scope and w.model = :kept and w.n = v.n offset 0)
           or not exists (select from memories m
                          where m.tenant_id = :tenant and m.n = v.n and m.status = 'active' offset 0))
    order by v.n
    limit :many
    for update of v skip locked
)
delete from memory_vectors d
where d.tenant_id = :tenant and d.scope = :scope and d.model = :model and d.n = any(array(select n from batch))
returning d.n
