-- name: price_calls
-- The reader had no price. The demo takes this one.
update llm_calls c set cost_usd = (c.input_tokens * cast(:input_usd as numeric) + c.output_tokens * cast(:output_usd as numeric)) / 1e6
where c.tenant_id = :tenant

-- name: count_totals
insert into budget_totals (tenant_id, period, starts_on, project_id, purpose, spent_usd, spent_tokens)
select c.tenant_id, p.period, date_trunc(p.period, c.created_at, 'UTC')::date, coalesce(c.project_id, ''), c.purpose,
       sum(c.cost_usd), sum(c.input_tokens + c.output_tokens)
from llm_calls c cross join (values ('day'), ('month')) p(period)
where c.tenant_id = :tenant
group by 1, 2, 3, 4, 5

-- name: bullet_keys
-- The bullets with the titles with which they were added.
select m.key, r.title
from memories m
join memory_revisions r on r.tenant_id = m.tenant_id and r.memory_id = m.id and r.revision = 1
where m.tenant_id = :tenant and m.kind = 'bullet' and r.title is not null

-- name: delete_tickets
delete from tickets t where t.lane = :tenant

-- name: drop_logins
select analytics.drop_login(l.tenant_id, l.role_name) from analytics.logins l where l.tenant_id = :tenant
