-- A playbook with its history, for tests, for tests/support/analytics_examples.sql and for `bench analytics`. Deterministic. The caller makes
-- the temporary table `wanted` (tenant_id uuid, bullets int, revisions int, verdicts int, traces int, days int, starts_at timestamptz)
-- and sets session_replication_role to replica, because rows get explicit times. Bullet 5 turns harmful in the second half.
create function pg_temp.pick(int, text, int) returns int language sql immutable as $$ select ((hashint4($1) # hashtext($2)) & 2147483647) % $3 $$;
create function pg_temp.h(int, text) returns int language sql immutable as $$ select pg_temp.pick($1, $2, 1000) $$;
create function pg_temp.id(uuid, text, bigint) returns uuid language sql immutable as $$ select md5($1::text || $2 || $3)::uuid $$;

insert into tenants (id, slug) select tenant_id, 'analytics-' || tenant_id from wanted on conflict do nothing;
insert into scopes (tenant_id, id, project_id, type, name)
select tenant_id, s.id, 'default', s.type, s.name from wanted
cross join (values (1, 'playbook', 'support'), (2, 'kind', 'reflection'), (3, 'kind', 'strategy'), (4, 'playbook', 'billing')) s(id, type, name);
insert into labels (tenant_id, id, type, name) select tenant_id, 1, 'model', 'test' from wanted;

create temporary table changes as
select w.*, n, n / 5 + 1 as version, w.starts_at + make_interval(secs => (n / 5) * 5.0 / w.revisions * w.days * 86400) as at,
       case when n % (w.revisions / w.bullets) = 0 then n / (w.revisions / w.bullets)
            else pg_temp.pick(n, 'b', n / (w.revisions / w.bullets) + 1) end as bullet
from wanted w cross join lateral generate_series(0, w.revisions - 1) n;

create temporary table revised as
select c.*, row_number() over first_to_last revision, row_number() over (partition by tenant_id, bullet order by n desc) rest,
       lead(version) over first_to_last until_version, pg_temp.h(bullet, 'life') % 8 life
from changes c
window first_to_last as (partition by tenant_id, bullet order by n);

create temporary table history as
select r.*, 'mis-' || lpad((bullet + 1)::text, 5, '0') as key,
       case when revision = 1 then 'created' when rest = 1 and life = 0 then 'deleted' when rest = 1 and life = 1 then 'archived'
            when rest = 1 and life = 2 or rest = 2 and life = 3 then 'quarantined' when rest = 1 and life = 3 then 'released'
            else 'changed' end change_type,
       case when revision = 1 then 'active' when rest = 1 and life = 0 then 'deleted' when rest = 1 and life = 1 then 'archived'
            when rest = 1 and life = 2 or rest = 2 and life = 3 then 'quarantined' else 'active' end status,
       format('Before calling `tool_%s`, check `argument_%s` (revision %s).', bullet % 97, bullet % 89, revision) as content,
       (array['MISTAKES TO AVOID', 'TOOLS AND APIS', 'STRATEGIES'])[bullet % 3 + 1] as section
from revised r;

insert into playbook_versions (tenant_id, scope_id, version, change_type, added_count, updated_count, removed_count, active_count, sections,
                               reason, actor, run_id, created_at)
select tenant_id, 1, version, 'deltas', count(*) filter (where change_type = 'created'), count(*) filter (where status <> 'deleted' and change_type <> 'created'),
       count(*) filter (where change_type = 'deleted'),
       sum(sum((change_type = 'created')::int - (change_type in ('deleted', 'archived', 'quarantined'))::int + (change_type = 'released')::int))
           over (partition by tenant_id order by version),
       case when version = 1 then '[]'::jsonb end, 'Learned from ' || count(*) || ' lessons.', 'curator', pg_temp.id(tenant_id, 'curate', version), min(at)
from history group by tenant_id, version;

insert into playbooks (tenant_id, scope_id, project_id, name, version, active_count, sections, key_counters, aliases, created_at, updated_at)
select tenant_id, 1, 'default', 'support', max(version), count(*) filter (where rest = 1 and status = 'active'), '[]', '{}', '{}', min(at), max(at)
from history group by tenant_id;
insert into playbooks (tenant_id, scope_id, project_id, name, sections, key_counters, aliases, created_at)
select tenant_id, 4, 'default', 'billing', '[]', '{}', '{}', starts_at from wanted;

-- The terms of each bullet: two rare ones that it shares with at most a few others, and common ones.
insert into memories (tenant_id, id, seq, project_id, layer, kind, scope_id, key, section, content, searchable_text, terms, source, tokenizer, fingerprint,
                      playbook_version, revision, status, change_reason, change_actor, change_run_id, created_at, updated_at)
overriding system value
select l.tenant_id, pg_temp.id(l.tenant_id, 'bullet', l.bullet), l.seq, 'default', 'sm', 'bullet', 1, l.key, l.section, l.content, l.content,
       array[1000 + l.seq / 2 % 5000, 7000 + l.seq / 2 % 4999, 1 + l.seq % 97, 200 + l.seq % 89, 300 + l.seq % 7],
       'curator', 't', decode(md5(l.content), 'hex'), l.version, l.revision, l.status, 'Learned.', 'curator',
       pg_temp.id(l.tenant_id, 'curate', l.version), f.at, l.at
from (select h.*, h.bullet + 1 seq from history h) l
join history f on f.tenant_id = l.tenant_id and f.bullet = l.bullet and f.revision = 1
where l.rest = 1;

insert into memory_revisions (tenant_id, memory_id, revision, playbook_version, scope_id, key, section, content, keywords, tags, importance, status,
                              pinned, change_reason, change_actor, change_run_id, change_type, created_at)
select tenant_id, pg_temp.id(tenant_id, 'bullet', bullet), revision, version, 1, key, section, content, '{}', '{}', 0.5, status, false,
       case change_type when 'created' then 'The run failed because the argument was not checked.' when 'quarantined' then 'Harmful verdicts: 9. Helpful verdicts: 1.'
            when 'changed' then 'One more trace confirms it.' end,
       case change_type when 'deleted' then 'key:person' else 'curator' end, pg_temp.id(tenant_id, 'curate', version), change_type, at
from history;

insert into bullet_spans (tenant_id, bullet_id, from_version, until_version, scope_id, section, content, keywords, tags, status, pinned)
select tenant_id, pg_temp.id(tenant_id, 'bullet', bullet), version, until_version, 1, section, content, '{}', '{}', status, false
from history where until_version > version;

insert into traces (tenant_id, id, project_id, task_key, playbook, outcome, content_hash, retrieval_id, used_bullet_keys, created_at, updated_at)
select w.tenant_id, pg_temp.id(w.tenant_id, 'trace', n), 'default', 'task-' || n / 4, 'support',
       case when pg_temp.h(n, 'o') < 700 then 'success' when pg_temp.h(n, 'o') < 950 then 'failure' else 'error' end, '',
       pg_temp.id(w.tenant_id, 'retrieval', n), array['mis-' || lpad((pg_temp.pick(n, 'u', (n::bigint * w.bullets / w.traces)::int + 1) + 1)::text, 5, '0')],
       w.starts_at + make_interval(secs => (n + 0.5) / w.traces * w.days * 86400), w.starts_at
from wanted w cross join lateral generate_series(0, w.traces - 1) n;

update traces t set conflict = '{"reported": "success", "check": "failure", "reasons": ["1 of 9 tests failed."]}'
from wanted w
where t.tenant_id = w.tenant_id and t.outcome = 'success' and t.task_key like 'task-%7';

insert into retrievals (tenant_id, id, scope_id, version, kind, query, bullet_keys, scores, holdout_candidate, held_out, created_at)
select w.tenant_id, pg_temp.id(w.tenant_id, 'retrieval', n), 1, 1, 'render', 'how to call tool ' || n % 97, case when n % 41 = 0 then '{}' else k.keys end,
       case when n % 23 = 0 then '{0.21}'::real[] when n % 41 = 0 then '{}' else array[0.9, 0.7, 0.5]::real[] end,
       case when n % 5 = 0 and n % 41 > 0 then k.keys[1] end, n % 10 = 0 and n % 41 > 0, w.starts_at + make_interval(secs => (n + 0.4) / w.traces * w.days * 86400)
from wanted w
cross join lateral generate_series(0, w.traces - 1) n
cross join lateral (
    select array_agg(distinct 'mis-' || lpad((pg_temp.pick(n, i::text, (n::bigint * w.bullets / w.traces)::int + 1) + 1)::text, 5, '0')) keys
    from generate_series(1, 8) i
) k;

insert into runs (tenant_id, id, kind, state, trace_id, created_at)
select w.tenant_id, pg_temp.id(w.tenant_id, 'reflect', n), 'reflect', 'done', pg_temp.id(w.tenant_id, 'trace', n),
       w.starts_at + make_interval(secs => (n + 0.6) / w.traces * w.days * 86400)
from wanted w cross join lateral generate_series(0, w.traces - 1) n;
insert into runs (tenant_id, id, kind, state, trace_id, input, created_at)
select tenant_id, pg_temp.id(tenant_id, 'curate', version), 'apply', 'done',
       pg_temp.id(tenant_id, 'trace', (min(n)::bigint * max(traces) / max(revisions))), '{"playbook": "support"}', min(at)
from history group by tenant_id, version;

insert into llm_calls (tenant_id, id, run_id, project_id, provider, model, purpose, status, input_tokens, output_tokens, cached_tokens,
                       cache_write_tokens, cost_usd, latency_ms, created_at)
select w.tenant_id, pg_temp.id(w.tenant_id, 'call' || i, n), pg_temp.id(w.tenant_id, 'reflect', n), 'default', 'openai',
       case when n % 3 = 0 then 'large' else 'small' end, (array['evaluate', 'reflect'])[i], case when n % 50 = 7 then 'error' else 'ok' end,
       1000 + n % 500, 200, 0, 0, case when n % 3 = 0 then 0.01 else 0.002 end, 800,
       w.starts_at + make_interval(secs => (n + 0.7) / w.traces * w.days * 86400)
from wanted w cross join lateral generate_series(0, w.traces - 1) n cross join generate_series(1, 2) i;

insert into memories (tenant_id, id, seq, project_id, layer, kind, scope_id, content, searchable_text, source, tokenizer, fingerprint, trace_id,
                      error_category, outcome, created_at)
overriding system value
select w.tenant_id, pg_temp.id(w.tenant_id, k.kind, n), 1000000 + n * 2 + k.scope, 'default', 'rm', k.kind, k.scope, 'The agent did not check an argument.',
       'argument', 'engine', 't', '', pg_temp.id(w.tenant_id, 'trace', n),
       case when k.kind = 'reflection' then (array['wrong_argument', 'timeout', 'missing_step'])[n % 3 + 1] end,
       case when pg_temp.h(n, 'o') < 700 then 'success' else 'failure' end,
       w.starts_at + make_interval(secs => (n + 0.8) / w.traces * w.days * 86400)
from wanted w
cross join lateral generate_series(0, w.traces - 1) n
cross join (values ('reflection', 2), ('strategy', 3)) k(kind, scope)
where n % 2 = 0;

insert into memory_links (tenant_id, source_id, relation, target_kind, target_id, created_at)
select h.tenant_id, pg_temp.id(h.tenant_id, 'bullet', h.bullet), 'derived_from', 'memory',
       pg_temp.id(h.tenant_id, 'strategy', (h.n::bigint * h.traces / h.revisions) / 2 * 2), h.at
from history h where h.revision = 1;
insert into memory_links (tenant_id, source_id, relation, target_kind, target_id, created_at)
select h.tenant_id, pg_temp.id(h.tenant_id, 'bullet', h.bullet - 1), case when h.bullet % 2 = 0 then 'supersedes' else 'contradicts' end, 'memory',
       pg_temp.id(h.tenant_id, 'bullet', h.bullet), h.at
from history h where h.bullet > 0 and (h.change_type = 'deleted' and h.bullet % 2 = 0 or h.change_type = 'quarantined' and h.bullet % 2 = 1);

insert into curated_lessons (tenant_id, scope_id, fingerprint, decision, bullet_id, memory_id, created_at)
select w.tenant_id, 1, decode(md5('lesson' || n), 'hex'), case when n % 6 = 0 then 'added' else 'already_known' end, null,
       pg_temp.id(w.tenant_id, 'strategy', n), w.starts_at + make_interval(secs => (n + 0.9) / w.traces * w.days * 86400)
from wanted w cross join lateral generate_series(0, w.traces - 1) n where n % 2 = 0;

insert into bullet_verdicts (tenant_id, id, bullet_id, trace_id, judge, tag, run_id, actor, created_at, updated_at)
select v.tenant_id, pg_temp.id(v.tenant_id, 'verdict', n), pg_temp.id(v.tenant_id, 'bullet', v.bullet), pg_temp.id(v.tenant_id, 'trace', v.trace),
       v.judge, case when v.bullet = 4 and n > v.verdicts / 2 then (case when pg_temp.h(n, 't') < 900 then 'harmful' else 'helpful' end)
                     when pg_temp.h(n, 't') < 700 then 'helpful' when pg_temp.h(n, 't') < 850 then 'harmful' else 'neutral' end,
       case when v.judge = 'llm' then pg_temp.id(v.tenant_id, 'reflect', v.trace) end, 'run', v.at, v.at
from (
    select w.tenant_id, n, w.verdicts, (n::bigint * w.traces / w.verdicts)::int trace,
           (array['llm', 'outcome', 'human'])[pg_temp.h(n, 'j') % 3 + 1] judge,
           case when pg_temp.h(n, 'x') < greatest(5, 500 / w.bullets) and n > w.verdicts / w.bullets * 5 then 4
                else pg_temp.pick(n, 'v', (n::bigint * w.bullets / w.verdicts)::int + 1) end bullet,
           w.starts_at + make_interval(secs => (n + 0.9) / w.verdicts * w.days * 86400) as at
    from wanted w cross join lateral generate_series(0, w.verdicts - 1) n
) v
on conflict do nothing;

-- The transaction's own rows have no statistics yet.
analyze memories, bullet_verdicts, retrievals;

update memories m set helpful = c.helpful, harmful = c.harmful, neutral = c.neutral
from (select tenant_id, bullet_id, count(*) filter (where tag = 'helpful') helpful, count(*) filter (where tag = 'harmful') harmful,
             count(*) filter (where tag = 'neutral') neutral
      from bullet_verdicts where tenant_id in (select tenant_id from wanted) group by tenant_id, bullet_id) c
where m.tenant_id = c.tenant_id and m.id = c.bullet_id;

insert into memory_usage (tenant_id, memory_id, use_count, last_used_at)
select m.tenant_id, m.id, u.use_count, u.last_used_at
from (
    select r.tenant_id, r.scope_id, k.key, count(*) use_count, max(r.created_at) last_used_at
    from retrievals r cross join lateral unnest(r.bullet_keys) k(key)
    where r.tenant_id in (select tenant_id from wanted)
    group by r.tenant_id, r.scope_id, k.key
) u
join memories m on m.tenant_id = u.tenant_id and m.scope_id = u.scope_id and m.key = u.key;

insert into memory_vectors (tenant_id, scope_id, model_label_id, seq, kind_id, confidence, importance, created_at, tag_label_ids, embedding)
select m.tenant_id, 1, 1, m.seq, 4, 0.5, 0.5, m.created_at, '{}',
       (select array_agg(case when i = (m.seq / 2 * 7) % 64 then 1 else 0.01 * (m.seq % 2) end) from generate_series(0, 63) i)::vector::halfvec
from memories m
where m.tenant_id in (select tenant_id from wanted) and m.scope_id = 1 and m.status = 'active';

insert into agent_runs (tenant_id, id, project_id, query, playbook, state, result, feedback, round_count, replan_count, token_count, cost_usd, trace_id,
                        created_at, started_at, finished_at)
select w.tenant_id, pg_temp.id(w.tenant_id, 'agent', n), 'default', 'how to call tool ' || n % 97, 'support',
       case when n % 19 = 3 then 'failed' else 'done' end,
       case when n % 19 <> 3 then jsonb_build_object('calibrated_confidence', 0.35 + pg_temp.h(n, 'c') % 60 / 100.0) end,
       case when n % 19 <> 3 and n % 3 = 0 then (case when pg_temp.h(n, 'f') < 350 + pg_temp.h(n, 'c') % 60 * 10 then 'right' else 'wrong' end) end,
       (n % 7 = 0)::int, (n % 11 = 0)::int, 3000 + n % 500, 0.004, pg_temp.id(w.tenant_id, 'trace', n), t.at, t.at, t.at + make_interval(secs => 5 + n % 40)
from wanted w
cross join lateral generate_series(0, w.traces - 1, 4) n
cross join lateral (select w.starts_at + make_interval(secs => (n + 0.45) / w.traces * w.days * 86400) as at) t;
