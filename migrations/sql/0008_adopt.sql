-- What a tenant has vectors of now is what serves it. A label says what made it: static-minilm-256/1, openai/NAME@DIMENSIONS, fastembed/NAME.
insert into embedding_models (tenant_id, label, provider, name, dimensions, state)
select l.tenant_id, l.name,
       case when l.name like 'static-%' then 'static' else split_part(l.name, '/', 1) end,
       case when l.name not like 'static-%' then regexp_replace(regexp_replace(l.name, '^[^/]*/', ''), '@\d+$', '') end,
       cast(substring(l.name from '@(\d+)$') as int),
       'active'
from labels l
cross join lateral (
    select max(v.n) n
    from scopes s
    join memory_vectors v on v.tenant_id = s.tenant_id and v.scope = s.scope and v.model = l.id
    where s.tenant_id = l.tenant_id
) newest
where l.space = 'model' and newest.n is not null
  and l.tenant_id = nullif(current_setting('hansei.tenant_id', true), '')::uuid
order by newest.n desc
limit 1
