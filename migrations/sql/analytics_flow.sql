-- How lessons flow from traces to bullets: funnel, effect, coverage, contradictions, cost and errors.

create function questions.funnel(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, stage_number integer, stage text, count bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p.tenant_id, p.project_id, p.name, s.day, s.stage_number, s.stage, s.count
    from playbooks p
    cross join lateral (
        select (t.created_at at time zone 'UTC')::date, 1, 'traces', count(*) from traces t
        where t.tenant_id = p_tenant_id and t.project_id = p.project_id and t.playbook = p.name and t.created_at >= v_first and t.created_at < v_end
        group by 1
        union all
        select (m.created_at at time zone 'UTC')::date, case m.kind when 'reflection' then 2 else 3 end,
               case m.kind when 'reflection' then 'reflections' else 'strategies_and_insights' end, count(*)
        from memories m
        cross join lateral (
            -- LIMIT: one trace at a time. A join would read all traces of the playbook.
            select from traces t
            where t.tenant_id = p_tenant_id and t.id = m.trace_id and t.project_id = p.project_id and t.playbook = p.name
            limit 1
        ) own
        where m.tenant_id = p_tenant_id and m.project_id = p.project_id and m.kind in ('reflection', 'strategy', 'insight')
          and m.created_at >= v_first and m.created_at < v_end
        group by 1, 2, 3
        union all
        select (l.created_at at time zone 'UTC')::date, 4, 'lessons_decided', count(*) from curated_lessons l
        where l.tenant_id = p_tenant_id and l.scope_id = p.scope_id and l.created_at >= v_first and l.created_at < v_end
        group by 1
        union all
        select (v.created_at at time zone 'UTC')::date, 5, 'bullets_created', sum(v.added_count)::bigint from playbook_versions v
        where v.tenant_id = p_tenant_id and v.scope_id = p.scope_id and v.created_at >= v_first and v.created_at < v_end
        group by 1
        union all
        select (r.created_at at time zone 'UTC')::date, 6, 'bullets_served', count(distinct k.key) from retrievals r
        cross join lateral unnest(r.bullet_keys) k(key)
        where r.tenant_id = p_tenant_id and r.scope_id = p.scope_id and r.created_at >= v_first and r.created_at < v_end
        group by 1
        union all
        select (t.created_at at time zone 'UTC')::date, 7, 'bullets_cited', count(distinct k.key) from traces t
        cross join lateral unnest(t.used_bullet_keys) k(key)
        where t.tenant_id = p_tenant_id and t.project_id = p.project_id and t.playbook = p.name and t.created_at >= v_first and t.created_at < v_end
        group by 1
    ) s(day, stage_number, stage, count)
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook) and s.count > 0
    union all
    select p.tenant_id, p.project_id, p.name, (v.created_at at time zone 'UTC')::date, 8, 'bullets_judged', count(distinct v.bullet_id)
    from counted_verdicts v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
    join playbooks p on p.tenant_id = v.tenant_id and p.scope_id = m.scope_id
    where v.tenant_id = p_tenant_id and v.created_at >= v_first and v.created_at < v_end
      and (p_project_id is null or p.project_id = p_project_id) and (p_playbook is null or p.name = p_playbook)
    group by p.tenant_id, p.project_id, p.name, 4;
end $$;

-- How well what was handed out fits its query, by the score of the best bullet: the `match` of a search (MIN_RELEVANCE in
-- memories/search/query.py). Null if the scores are not known.
create function questions.match_of(bullet_keys text[], best_score float8) returns text language sql immutable
return case when bullet_keys = '{}' then 'none' when best_score >= 0.45 then 'strong' when best_score >= 0.25 then 'weak'
            when best_score is not null then 'none' end;

-- The match of a query is that of its best bullet. A render of a whole small playbook hands out all bullets, each with its score. Retrievals
-- of the hold-outs do not count: what they lack was withheld.
create function questions.coverage(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, retrieval_count bigint, strong_count bigint, weak_count bigint,
               unmatched_count bigint, median_best_score float8)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p.tenant_id, p.project_id, p.name, (r.created_at at time zone 'UTC')::date, count(*),
           count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'strong'),
           count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'weak'),
           count(*) filter (where questions.match_of(r.bullet_keys, best.score) = 'none'),
           percentile_cont(0.5) within group (order by best.score)
    from playbooks p
    join retrievals r on r.tenant_id = p_tenant_id and r.scope_id = p.scope_id and r.created_at >= v_first and r.created_at < v_end
    cross join lateral (select max(s.score)::float8 score from unnest(r.scores) s(score)) best
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
      and r.query <> '' and r.advice_held_out is not true and not r.held_out
    group by p.tenant_id, p.project_id, p.name, 4;
end $$;

create function questions.uncovered_queries(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, created_at timestamptz, kind text, query text, best_score float8,
               bullet_count integer, retrieval_id uuid)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, r.created_at, r.kind, r.query, best.score best_score, cardinality(r.bullet_keys) bullet_count,
           r.id retrieval_id
    from playbooks p
    join retrievals r on r.tenant_id = p_tenant_id and r.scope_id = p.scope_id
    cross join lateral (select max(s.score)::float8 score from unnest(r.scores) s(score)) best
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
      and r.query <> '' and r.advice_held_out is not true and not r.held_out and questions.match_of(r.bullet_keys, best.score) = 'none' and r.created_at >= p_since and r.created_at < p_until;
end $$;

create function questions.contradictions(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, other_key text, status text, other_status text, content text,
               other_content text, found_at timestamptz)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, a.key, b.key other_key, a.status, b.status other_status, a.content, b.content other_content,
           l.created_at found_at
    from playbooks p
    join memories a on a.tenant_id = p_tenant_id and a.scope_id = p.scope_id and a.key is not null
    join memory_links l on l.tenant_id = p_tenant_id and l.source_id = a.id and l.relation = 'contradicts' and l.target_kind = 'memory'
    join memories b on b.tenant_id = p_tenant_id and b.id = l.target_id and b.scope_id = a.scope_id and b.key is not null
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook) and l.created_at >= p_since and l.created_at < p_until;
end $$;

create function questions.conflicts(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, trace_id uuid, created_at timestamptz, task_key text,
               reported_outcome text, check_outcome text, reason text)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select t.tenant_id, t.project_id, t.playbook, t.id trace_id, t.created_at, t.task_key, t.conflict ->> 'reported' reported_outcome,
           t.conflict ->> 'check' check_outcome, t.conflict -> 'reasons' ->> 0 reason
    from traces t
    where t.tenant_id = p_tenant_id and (p_project_id is null or t.project_id = p_project_id)
      and (p_playbook is null or t.playbook = p_playbook) and t.conflict is not null and t.created_at >= p_since and t.created_at < p_until;
end $$;

create function questions.costs(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, purpose text, provider text, model text, call_count bigint,
               failed_count bigint, unpriced_count bigint, input_tokens bigint, output_tokens bigint, cost_usd numeric)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select l.tenant_id, l.project, l.playbook, (l.created_at at time zone 'UTC')::date, l.purpose, l.provider, l.model, count(*),
           count(*) filter (where l.status <> 'ok'), count(*) filter (where l.status = 'ok' and l.cost_usd is null),
           coalesce(sum(l.input_tokens), 0), coalesce(sum(l.output_tokens), 0), coalesce(sum(l.cost_usd), 0)
    from llm_call_details l
    where l.tenant_id = p_tenant_id and (p_project_id is null or l.project = p_project_id)
      and (p_playbook is null or l.playbook = p_playbook) and l.created_at >= v_first and l.created_at < v_end
    group by l.tenant_id, l.project, l.playbook, 4, l.purpose, l.provider, l.model;
end $$;

-- What a playbook has cost so far, and what came of it. A bullet in use is an active one. Traces and lessons are counted once for all playbooks.
create function questions.unit_costs(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, cost_usd numeric, trace_count bigint, lesson_count bigint,
               bullet_count bigint, usd_per_trace numeric, usd_per_lesson numeric, usd_per_bullet numeric)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, coalesce(c.cost_usd, 0) cost_usd, coalesce(t.count, 0) trace_count,
           coalesce(l.count, 0) lesson_count, b.count bullet_count, c.cost_usd / t.count usd_per_trace, c.cost_usd / l.count usd_per_lesson,
           c.cost_usd / nullif(b.count, 0) usd_per_bullet
    from playbooks p
    left join playbook_costs c on c.tenant_id = p_tenant_id and c.project_id = p.project_id and c.playbook = p.name
    left join (
        select o.project_id, o.playbook, count(*)
        from traces o
        where o.tenant_id = p_tenant_id and o.playbook is not null
        group by o.project_id, o.playbook
    ) t on t.project_id = p.project_id and t.playbook = p.name
    left join (
        select m.project_id, o.playbook, count(*)
        from memories m
        join traces o on o.tenant_id = p_tenant_id and o.id = m.trace_id
        where m.tenant_id = p_tenant_id and m.kind in ('strategy', 'insight') and o.playbook is not null
        group by m.project_id, o.playbook
    ) l on l.project_id = p.project_id and l.playbook = p.name
    cross join lateral (
        select count(*) from memories m where m.tenant_id = p_tenant_id and m.scope_id = p.scope_id and m.key is not null and m.status = 'active'
    ) b
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook) and p.deleted_at is null;
end $$;

create function questions.error_categories(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, error_category text, reflection_count bigint,
               failed_count bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p.tenant_id, p.project_id, p.name, (m.created_at at time zone 'UTC')::date, nullif(m.error_category, 'unknown_error'), count(*),
           count(*) filter (where m.outcome in ('failure', 'error', 'timeout'))
    from playbooks p
    join memories m on m.tenant_id = p_tenant_id and m.project_id = p.project_id and m.kind = 'reflection' and m.created_at >= v_first and m.created_at < v_end
    join traces t on t.tenant_id = p_tenant_id and t.id = m.trace_id and t.playbook = p.name
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
    group by p.tenant_id, p.project_id, p.name, 4, 5;
end $$;

create function questions.agent_runs(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, confidence_band float8, state text, run_count bigint,
               right_count bigint, wrong_count bigint, mean_confidence float8, question_count bigint, replan_count bigint,
               mean_seconds float8, token_count bigint, cost_usd float8)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select a.tenant_id, a.project_id, a.playbook, (a.created_at at time zone 'UTC')::date,
           case when a.confidence >= 0.9 then 0.9 else floor(a.confidence * 10) / 10 end confidence_band, a.state, count(*),
           count(*) filter (where a.feedback = 'right'), count(*) filter (where a.feedback = 'wrong'),
           avg(a.confidence), sum(a.round_count), sum(a.replan_count),
           avg(extract(epoch from a.finished_at - a.created_at))::float8, sum(a.token_count), sum(a.cost_usd)
    from agent_runs a
    where a.tenant_id = p_tenant_id and (p_project_id is null or a.project_id = p_project_id)
      and (p_playbook is null or a.playbook = p_playbook) and a.created_at >= v_first and a.created_at < v_end
    group by a.tenant_id, a.project_id, a.playbook, 4, confidence_band, a.state;
end $$;
