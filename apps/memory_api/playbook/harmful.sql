-- Active bullets of a playbook that were judged harmful often enough to be looked at, and again since they were last put back
-- into service, with the votes of the playbook's other bullets. Pinned bullets are never among them.
select m.key, m.helpful, m.harmful, v.helpful - m.helpful others_helpful, v.harmful - m.harmful others_harmful
from memories m
cross join (
    select sum(o.helpful) helpful, sum(o.harmful) harmful
    from memories o
    where o.tenant_id = :tenant and o.scope = :scope and o.key is not null and o.status <> 'deleted'
) v
where m.tenant_id = :tenant and m.scope = :scope and m.key is not null and m.status = 'active' and not m.pinned
  and m.harmful >= :harmed and m.harmful > m.helpful and m.harmful > m.forgiven
order by m.id
