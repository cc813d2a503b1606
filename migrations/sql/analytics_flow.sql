-- Views of how lessons flow from traces to bullets: funnel, effect, coverage, contradictions, cost and errors.

create view questions.funnel with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, s.stage_number, s.stage, s.count
from playbooks p
join questions.days d on d.tenant_id = p.tenant_id
cross join lateral (
    select 1, 'traces', count(*) from traces t
    where t.tenant_id = p.tenant_id and t.project_id = p.project_id and t.playbook = p.name
      and t.created_at >= d.starts_at and t.created_at < d.ends_at
    union all
    select case m.kind when 'reflection' then 2 else 3 end, case m.kind when 'reflection' then 'reflections' else 'strategies_and_insights' end,
           count(*)
    from memories m
    join traces t on t.tenant_id = m.tenant_id and t.id = m.trace_id and t.project_id = p.project_id and t.playbook = p.name
    where m.tenant_id = p.tenant_id and m.project_id = p.project_id and m.kind in ('reflection', 'strategy', 'insight')
      and m.created_at >= d.starts_at and m.created_at < d.ends_at
    group by 1, 2
    union all
    select 4, 'lessons_decided', count(*) from curated_lessons l
    where l.tenant_id = p.tenant_id and l.scope_id = p.scope_id and l.created_at >= d.starts_at and l.created_at < d.ends_at
    union all
    select 5, 'bullets_created', sum(v.added_count)::bigint from playbook_versions v
    where v.tenant_id = p.tenant_id and v.scope_id = p.scope_id and v.created_at >= d.starts_at and v.created_at < d.ends_at
    union all
    select 6, 'bullets_served', count(distinct k.key) from retrievals r
    cross join lateral unnest(r.bullet_keys) k(key)
    where r.tenant_id = p.tenant_id and r.scope_id = p.scope_id and r.created_at >= d.starts_at and r.created_at < d.ends_at
    union all
    select 7, 'bullets_cited', count(distinct k.key) from traces t
    cross join lateral unnest(t.used_bullet_keys) k(key)
    where t.tenant_id = p.tenant_id and t.project_id = p.project_id and t.playbook = p.name
      and t.created_at >= d.starts_at and t.created_at < d.ends_at
    union all
    select 8, 'bullets_judged', count(distinct v.bullet_id) from counted_verdicts v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id and m.scope_id = p.scope_id
    where v.tenant_id = p.tenant_id and v.created_at >= d.starts_at and v.created_at < d.ends_at
) s(stage_number, stage, count)
where s.count > 0;

-- How well what was handed out fits its query, by the score of the best bullet: the `match` of a search (MIN_RELEVANCE in
-- memories/search/query.py). Null if the scores are not known.
create function questions.match_of(bullet_keys text[], best_score float8) returns text language sql immutable
return case when bullet_keys = '{}' then 'none' when best_score >= 0.45 then 'strong' when best_score >= 0.25 then 'weak'
            when best_score is not null then 'none' end;

-- The match of a query is that of its best bullet. A render of a whole small playbook hands out all bullets, each with its score. Retrievals
-- of the hold-outs do not count: what they lack was withheld.
create view questions.coverage with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, c.retrieval_count, c.strong_count, c.weak_count, c.unmatched_count, c.median_best_score
from playbooks p
join questions.days d on d.tenant_id = p.tenant_id
cross join lateral (
    select count(*) retrieval_count, count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'strong') strong_count,
           count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'weak') weak_count,
           count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'none') unmatched_count,
           percentile_cont(0.5) within group (order by best.score) median_best_score
    from retrievals r
    cross join lateral (select max(s.score)::float8 score from unnest(r.scores) s(score)) best
    where r.tenant_id = p.tenant_id and r.scope_id = p.scope_id and r.query <> '' and r.advice_held_out is not true and not r.held_out
      and r.created_at >= d.starts_at and r.created_at < d.ends_at
) c
where c.retrieval_count > 0;

create view questions.uncovered_queries with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, r.created_at, r.kind, r.query, best.score best_score, cardinality(r.bullet_keys) bullet_count,
       r.id retrieval_id
from playbooks p
join retrievals r on r.tenant_id = p.tenant_id and r.scope_id = p.scope_id
cross join lateral (select max(s.score)::float8 score from unnest(r.scores) s(score)) best
where r.query <> '' and r.advice_held_out is not true and not r.held_out and questions.match_of(r.bullet_keys, best.score) = 'none';

create view questions.contradictions with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, a.key, b.key other_key, a.status, b.status other_status, a.content, b.content other_content,
       l.created_at found_at
from playbooks p
join memories a on a.tenant_id = p.tenant_id and a.scope_id = p.scope_id and a.key is not null
join memory_links l on l.tenant_id = a.tenant_id and l.source_id = a.id and l.relation = 'contradicts' and l.target_kind = 'memory'
join memories b on b.tenant_id = l.tenant_id and b.id = l.target_id and b.scope_id = a.scope_id and b.key is not null;

create view questions.conflicts with (security_invoker = true) as
select t.tenant_id, t.project_id, t.playbook, t.id trace_id, t.created_at, t.task_key, t.conflict ->> 'reported' reported_outcome,
       t.conflict ->> 'check' check_outcome, t.conflict -> 'reasons' ->> 0 reason
from traces t
where t.conflict is not null;

create view questions.costs with (security_invoker = true) as
select d.tenant_id, c.project project_id, c.playbook, d.day, c.purpose, c.provider, c.model, c.call_count, c.failed_count, c.unpriced_count,
       c.input_tokens, c.output_tokens, c.cost_usd
from questions.days d
cross join lateral (
    select l.project, l.playbook, l.purpose, l.provider, l.model, count(*) call_count, count(*) filter (where l.status <> 'ok') failed_count,
           count(*) filter (where l.status = 'ok' and l.cost_usd is null) unpriced_count, coalesce(sum(l.input_tokens), 0) input_tokens,
           coalesce(sum(l.output_tokens), 0) output_tokens, coalesce(sum(l.cost_usd), 0) cost_usd
    from llm_call_details l
    where l.tenant_id = d.tenant_id and l.created_at >= d.starts_at and l.created_at < d.ends_at
    group by l.project, l.playbook, l.purpose, l.provider, l.model
) c;

-- What a playbook has cost so far, and what came of it. A bullet in use is an active one. Traces and lessons are counted once for all playbooks.
create view questions.unit_costs with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, coalesce(c.cost_usd, 0) cost_usd, coalesce(t.count, 0) trace_count,
       coalesce(l.count, 0) lesson_count, b.count bullet_count, c.cost_usd / t.count usd_per_trace, c.cost_usd / l.count usd_per_lesson,
       c.cost_usd / nullif(b.count, 0) usd_per_bullet
from playbooks p
left join playbook_costs c on c.tenant_id = p.tenant_id and c.project_id = p.project_id and c.playbook = p.name
left join (
    select tenant_id, project_id, playbook, count(*) from traces where playbook is not null group by tenant_id, project_id, playbook
) t on t.tenant_id = p.tenant_id and t.project_id = p.project_id and t.playbook = p.name
left join (
    select m.tenant_id, m.project_id, t.playbook, count(*)
    from memories m
    join traces t on t.tenant_id = m.tenant_id and t.id = m.trace_id
    where m.kind in ('strategy', 'insight') and t.playbook is not null
    group by m.tenant_id, m.project_id, t.playbook
) l on l.tenant_id = p.tenant_id and l.project_id = p.project_id and l.playbook = p.name
cross join lateral (
    select count(*) from memories m where m.tenant_id = p.tenant_id and m.scope_id = p.scope_id and m.key is not null and m.status = 'active'
) b
where p.deleted_at is null;

create view questions.error_categories with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, c.error_category, c.reflection_count, c.failed_count
from playbooks p
join questions.days d on d.tenant_id = p.tenant_id
cross join lateral (
    select nullif(m.error_category, 'unknown_error') error_category, count(*) reflection_count,
           count(*) filter (where m.outcome in ('failure', 'error', 'timeout')) failed_count
    from memories m
    join traces t on t.tenant_id = m.tenant_id and t.id = m.trace_id and t.playbook = p.name
    where m.tenant_id = p.tenant_id and m.project_id = p.project_id and m.kind = 'reflection'
      and m.created_at >= d.starts_at and m.created_at < d.ends_at
    group by 1
) c;

-- Without the view `days`: an agent run needs no playbook.
create view questions.agent_runs with (security_invoker = true) as
select f.tenant_id, c.project_id, c.playbook, d.midnight::date as day, c.confidence_band, c.state, c.run_count, c.right_count, c.wrong_count,
       c.mean_confidence, c.question_count, c.replan_count, c.mean_seconds, c.token_count, c.cost_usd
from (select tenant_id, min(created_at) created_at from agent_runs group by tenant_id) f
cross join lateral generate_series(
    date_trunc('day', f.created_at at time zone 'UTC'), now() at time zone 'UTC', interval '1 day'
) d(midnight)
cross join lateral (
    select a.project_id, a.playbook, case when a.confidence >= 0.9 then 0.9 else floor(a.confidence * 10) / 10 end confidence_band, a.state, count(*) run_count,
           count(*) filter (where a.feedback = 'right') right_count, count(*) filter (where a.feedback = 'wrong') wrong_count,
           avg(a.confidence) mean_confidence, sum(a.round_count) question_count, sum(a.replan_count) replan_count,
           avg(extract(epoch from a.finished_at - a.created_at))::float8 mean_seconds, sum(a.token_count) token_count,
           sum(a.cost_usd) cost_usd
    from agent_runs a
    where a.tenant_id = f.tenant_id and a.created_at >= d.midnight at time zone 'UTC'
      and a.created_at < (d.midnight + interval '1 day') at time zone 'UTC'
    group by a.project_id, a.playbook, confidence_band, a.state
) c;
