-- The scopes with vectors of a model, and how many.
select s.scope, x.many
from scopes s
cross join lateral (select count(*) many from memory_vectors v
                    where v.tenant_id = :tenant and v.scope = s.scope and v.model = :model) x
where s.tenant_id = :tenant and x.many > 0
order by s.scope
