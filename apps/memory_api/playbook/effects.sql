-- What became of the runs of one playbook with each of its bullets and without it, a page of bullets by key.
select e.key,
       jsonb_object_agg(e.basis, jsonb_build_object(
           'with_n', e.with_n, 'with_won', e.with_won, 'without_n', e.without_n, 'without_won', e.without_won,
           'with_rate', e.with_rate, 'without_rate', e.without_rate, 'difference', e.difference,
           'low', e.low, 'high', e.high)) sides
from bullet_effects e
where e.tenant_id = :tenant and e.scope = :scope and (cast(:behind as text) is null or e.key > cast(:behind as text))
group by e.key
order by e.key
limit :limit
