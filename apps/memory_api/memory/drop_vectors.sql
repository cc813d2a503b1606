-- A batch of vectors that are searched no more: of memories that have one of the model that is, and of those not served at all.
-- A row that somebody is changing is left to the next round.
delete from memory_vectors d
using (
    select v.n from memory_vectors v
    where v.tenant_id = :tenant and v.scope = :scope and v.model = :model and v.n > :after
      and (exists (select from memory_vectors w
                   where w.tenant_id = :tenant and w.scope = :scope and w.model = :kept and w.n = v.n)
           or not exists (select from memories m where m.tenant_id = :tenant and m.n = v.n and m.status = 'active'))
    order by v.n
    limit :many
    for update of v skip locked
) x
where d.tenant_id = :tenant and d.scope = :scope and d.model = :model and d.n = x.n
returning d.n
