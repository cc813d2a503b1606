-- Spreads the sample over the last 30 days, as if agents had sent it one by one. Only for pictures.
update playbook_versions v set created_at = now() - interval '1 hour' - (m.last - v.version) * interval '40 hours'
from (select scope_id, max(version) last from playbook_versions group by scope_id) m where m.scope_id = v.scope_id;
update memory_revisions r set created_at = v.created_at
from playbook_versions v where v.scope_id = r.scope_id and v.version = r.playbook_version;
update traces t set created_at = now() - interval '2 hours' - o.number * interval '31 hours'
from (select id, row_number() over (order by playbook is null, id desc) number from traces) o where o.id = t.id;
update retrievals r set created_at = t.created_at - interval '5 minutes' from traces t where t.retrieval_id = r.id;
update bullet_verdicts v set created_at = t.created_at + interval '10 minutes' from traces t where t.id = v.trace_id;
update memories m set created_at = t.created_at from traces t where t.id = m.trace_id;
insert into llm_calls (tenant_id, id, run_id, project_id, purpose, provider, model, status, latency_ms, created_at, input_tokens, output_tokens, cost_usd)
select r.tenant_id, gen_random_uuid(), r.id, r.project_id, 'reflect', 'openai', 'gpt-5-mini', 'ok', 1800, now() - n * interval '19 hours', 5200 + n * 90, 700,
       0.004 + 0.0011 * (n % 7)
from (select * from runs where trace_id is not null order by id limit 1) r, generate_series(0, 35) n;
update playbooks set created_at = now() - interval '45 days';
update tenants set created_at = now() - interval '45 days';
-- A run whose cause a person can see and retry.
update runs set state = 'dead', attempts = max_attempts, finished_at = now(), error = '{"code": "llm_unavailable", "message": "The model provider did not respond. Retry later."}'
where trace_id = (select id from traces order by id offset 4 limit 1) and kind = 'evaluate';
update runs set parent_id = null where trace_id = (select id from traces order by id offset 4 limit 1);
