-- How many agent runs of a period succeeded with each bullet and without it.
--   randomized     each render draws one bullet and withholds it at random; only runs that drew this bullet are compared,
--                  so the two sides differ in nothing else
--   observational  runs that had the bullet (from a render or a search; without a retrieval: named or judged) against the
--                  runs that had other bullets of the playbook, but not this one, since the bullet exists; the two sides may
--                  differ in their tasks. Runs without any bullet show what all advice does (see `improvement`), and not what
--                  this bullet does: they do not count. A bullet that was always in the same runs as another one
--                  (always_with) has no difference of its own. Runs without a retrieval count from the oldest
--                  retrieval that is still stored, so that both sides cover the same time
-- The period is that of the retrieval, or of the trace without one. A run counts once per retrieval, as success or not (failure,
-- error, timeout). Partial and unknown outcomes do not count. Runs with a merged bullet count for the bullet that replaced it.
-- low and high: 95 % interval of the difference, Newcombe's hybrid of two Wilson intervals (1998, method 10).
create function questions.effects(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, status text, content text, basis text, with_runs
               bigint, with_successes bigint, with_rate float8, with_low float8, with_high float8, without_runs bigint,
               without_successes bigint, without_rate float8, without_low float8, without_high float8, difference float8, low float8,
               high float8, always_with text[])
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name, s.key, s.section, s.status, s.content, s.basis,
           s.with_runs, s.with_successes, w.rate, w.low, w.high, s.without_runs, s.without_successes, o.rate, o.low, o.high,
           own.difference, own.difference - sqrt((w.rate - w.low) ^ 2 + (o.high - o.rate) ^ 2),
           own.difference + sqrt((w.high - w.rate) ^ 2 + (o.rate - o.low) ^ 2), s.always_with
    from playbooks p
    -- One playbook at a time, so that each step reads its playbook and is computed once.
    cross join lateral (
        with outcomes as materialized (
            select r.id, r.created_at, r.bullet_keys, r.holdout_candidate, r.held_out, (ended.effective_outcome = 'success')::int success
            from retrievals r
            cross join lateral (
                select t.effective_outcome from traces t
                where t.tenant_id = p_tenant_id and t.project_id = p.project_id and t.retrieval_id = r.id and t.effective_outcome in ('success', 'failure', 'error', 'timeout')
                order by t.created_at, t.id
                limit 1
            ) ended
            where r.tenant_id = p_tenant_id and r.scope_id = p.scope_id and r.created_at >= p_since and r.created_at < p_until
            union all
            select t.id, t.created_at, t.used_bullet_keys || judged.bullet_keys, null, false, (t.effective_outcome = 'success')::int
            from traces t
            cross join lateral (
                select coalesce(array_agg(m.key), '{}') bullet_keys
                from bullet_verdicts v
                join memories m on m.tenant_id = p_tenant_id and m.id = v.bullet_id and m.scope_id = p.scope_id
                where v.tenant_id = p_tenant_id and v.trace_id = t.id
            ) judged
            where t.tenant_id = p_tenant_id and t.project_id = p.project_id and t.playbook = p.name
              and t.retrieval_id is null and t.effective_outcome in ('success', 'failure', 'error', 'timeout')
              and t.created_at >= p_since and t.created_at < p_until
              and t.created_at >= (select min(r.created_at) from retrievals r where r.tenant_id = p_tenant_id and r.scope_id = p.scope_id)
        ), uses as (
            select u.key, count(*) runs, sum(u.success) successes, bit_xor(hashtextextended(u.id::text, 0)) run_set
            from (
                select coalesce(a.value, served.key) key, o.id, o.success
                from outcomes o
                cross join lateral unnest(o.bullet_keys) served(key)
                left join jsonb_each_text(p.aliases) a on a.key = served.key
                group by o.id, o.success, coalesce(a.value, served.key)
            ) u
            group by u.key
        ), companions as (
            select u.runs, u.run_set, (array_agg(u.key order by u.key))[1:11] keys from uses u group by u.runs, u.run_set
        ), moments as (
            select o.created_at, null::text as key, 1 runs, o.success successes from outcomes o where o.bullet_keys <> '{}'
            union all
            select m.created_at, u.key, 0, 0
            from uses u
            join memories m on m.tenant_id = p_tenant_id and m.scope_id = p.scope_id and m.key = u.key
        ), totals as (
            select m.key, sum(m.runs) over later runs, sum(m.successes) over later successes
            from moments m
            window later as (order by m.created_at desc range unbounded preceding)
        ), sides as (
            select t.key, 'observational' basis, u.runs with_runs, u.successes with_successes,
                   greatest(t.runs - u.runs, 0) without_runs,
                   least(greatest(t.successes - u.successes, 0), greatest(t.runs - u.runs, 0)) without_successes,
                   (array_remove(c.keys, u.key))[1:10] always_with
            from totals t
            join uses u on u.key = t.key
            join companions c on c.runs = u.runs and c.run_set = u.run_set
            union all
            select coalesce(a.value, o.holdout_candidate), 'randomized',
                   count(*) filter (where not o.held_out), coalesce(sum(o.success) filter (where not o.held_out), 0),
                   count(*) filter (where o.held_out), coalesce(sum(o.success) filter (where o.held_out), 0), '{}'
            from outcomes o
            left join jsonb_each_text(p.aliases) a on a.key = o.holdout_candidate
            where o.holdout_candidate is not null
            group by 1
        )
        select d.*, m.section, m.status, m.content
        from sides d
        join memories m on m.tenant_id = p_tenant_id and m.scope_id = p.scope_id and m.key = d.key
    ) s
    cross join lateral wilson(s.with_runs, s.with_successes) w
    cross join lateral wilson(s.without_runs, s.without_successes) o
    cross join lateral (select case when s.always_with = '{}' then w.rate - o.rate end difference) own
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook);
end $$;

-- Do agents get better: how many agent runs succeeded, each week (null: in the whole period) and for each playbook (null: all of the
-- project). With and without advice: of the runs whose render drew the hold-out of advice (HANSEI_ADVICE_HOLDOUT_SHARE), which withholds
-- the whole block at random. Only runs that name a playbook and ended as a success or not count. Intervals as in `effects`.
create function questions.improvement(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, week date, runs bigint, successes bigint, rate float8, rate_low float8,
               rate_high float8, with_runs bigint, with_successes bigint, with_rate float8, without_runs bigint, without_successes
               bigint, without_rate float8, difference float8, low float8, high float8)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select s.tenant_id, s.project_id, s.playbook, s.week, s.runs, s.successes, a.rate, a.low, a.high, s.with_runs, s.with_successes, w.rate,
           s.without_runs, s.without_successes, o.rate, w.rate - o.rate,
           w.rate - o.rate - sqrt((w.rate - w.low) ^ 2 + (o.high - o.rate) ^ 2),
           w.rate - o.rate + sqrt((w.high - w.rate) ^ 2 + (o.rate - o.low) ^ 2)
    from (
        select e.tenant_id, e.project_id, e.playbook, e.week, count(*) runs, count(*) filter (where e.success) successes,
               count(*) filter (where not e.held_out) with_runs, count(*) filter (where not e.held_out and e.success) with_successes,
               count(*) filter (where e.held_out) without_runs, count(*) filter (where e.held_out and e.success) without_successes
        from (
            select t.tenant_id, t.project_id, t.playbook, date_trunc('week', t.created_at, 'UTC')::date week,
                   t.effective_outcome = 'success' success, r.advice_held_out held_out
            from traces t
            left join lateral (
                select o.advice_held_out from retrievals o where o.tenant_id = p_tenant_id and o.id = t.retrieval_id limit 1
            ) r on true
            where t.tenant_id = p_tenant_id and (p_project_id is null or t.project_id = p_project_id)
              and t.playbook is not null and (p_playbook is null or t.playbook = p_playbook)
              and t.effective_outcome in ('success', 'failure', 'error', 'timeout')
              and t.created_at >= p_since and t.created_at < p_until
        ) e
        group by e.tenant_id, e.project_id, grouping sets ((e.playbook, e.week), (e.playbook), (e.week), ())
    ) s
    cross join lateral wilson(s.runs, s.successes) a
    cross join lateral wilson(s.with_runs, s.with_successes) w
    cross join lateral wilson(s.without_runs, s.without_successes) o
    where p_playbook is null or s.playbook = p_playbook;
end $$;

grant usage on schema questions to hansei_app, hansei_worker;
