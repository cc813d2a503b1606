-- Models with vectors that nobody asks for: of a tenant's models neither active nor being filled, nor active a moment ago.
select l.id, l.name
from labels l
where l.tenant_id = :tenant and l.space = 'model'
  and exists (select from embedding_models a where a.tenant_id = :tenant and a.state = 'active')
  and not exists (select from embedding_models e
                  where e.tenant_id = :tenant and e.label = l.name
                    and (e.state <> 'retiring' or e.since > now() - cast(:grace as interval)))
  and exists (select from scopes s
              cross join lateral (select v.n from memory_vectors v
                                  where v.tenant_id = :tenant and v.scope = s.scope and v.model = l.id
                                  order by v.n limit 1) x
              where s.tenant_id = :tenant)
order by l.id
