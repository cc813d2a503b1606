-- What answers the questions of docs/analytics.md: a function for each one, of a tenant, a period, and a project and playbook, where null means
-- all of them. They run with the rights of the reader, so row-level security holds besides. Logins read the schema `analytics`
-- (login_views.py). A day is a day in UTC; days are read whole. Each table has a condition on the tenant of its own: Citus finds the node of a
-- statement by these, and a condition that compares two tables does not reach a subquery.
create schema questions;

-- The days from the one before the first playbook of a tenant until today, with the moments at which a day starts and ends.
create function questions.days(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, day date, starts_at timestamptz, ends_at timestamptz)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p_tenant_id, d.midnight::date, d.midnight at time zone 'UTC', (d.midnight + interval '1 day') at time zone 'UTC'
    from (select min(p.created_at) created_at from playbooks p where p.tenant_id = p_tenant_id having count(*) > 0) f
    cross join lateral generate_series(
        greatest(date_trunc('day', f.created_at at time zone 'UTC') - interval '1 day', v_first at time zone 'UTC'),
        least(now(), v_end - interval '1 day') at time zone 'UTC', interval '1 day'
    ) d(midnight);
end $$;

create function questions.bullets(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, title text, when_to_use text, content text,
               tags text[], status text, pinned boolean, helpful integer, harmful integer, neutral integer, confidence_score float8,
               usefulness float8, served_count bigint, last_served_at timestamptz, observation_count integer, playbook_version integer,
               revision integer, created_at timestamptz, updated_at timestamptz, created_by text, created_reason text,
               created_run_id uuid, memory_id uuid)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select m.tenant_id, p.project_id, p.name playbook, m.key, m.section, m.title, m.when_to_use, m.content, m.tags, m.status, m.pinned,
           m.helpful, m.harmful, m.neutral, m.confidence_score, m.usefulness, coalesce(u.use_count, 0) served_count,
           u.last_used_at last_served_at, m.observation_count, m.playbook_version, m.revision, m.created_at, m.updated_at,
           born.change_actor created_by, born.change_reason created_reason, born.change_run_id created_run_id, m.id memory_id
    from playbooks p
    join memories m on m.tenant_id = p_tenant_id and m.scope_id = p.scope_id and m.key is not null
    left join memory_usage u on u.tenant_id = p_tenant_id and u.memory_id = m.id
    left join memory_revisions born on born.tenant_id = p_tenant_id and born.memory_id = m.id and born.revision = 1
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
      and m.status <> 'deleted' and p.deleted_at is null and m.created_at >= p_since and m.created_at < p_until;
end $$;

create function questions.bullet_versions(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, revision integer, playbook_version integer,
               changed_at timestamptz, change_type text, merged_into text, valid_until timestamptz, section text, status text,
               title text, when_to_use text, content text, tags text[], pinned boolean, changed_by text, reason text, run_id uuid,
               run_kind text, trace_id uuid, playbook_change text, memory_id uuid)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, r.key, r.revision, r.playbook_version, v.created_at changed_at,
           case when merged.key is null then r.change_type else 'merged' end change_type, merged.key merged_into,
           next.created_at valid_until, r.section, r.status, r.title, r.when_to_use, r.content, r.tags, r.pinned,
           coalesce(r.change_actor, v.actor) changed_by, coalesce(r.change_reason, v.reason) reason,
           coalesce(r.change_run_id, v.run_id) run_id, run.kind run_kind, run.trace_id, v.change_type playbook_change, r.memory_id
    from playbooks p
    join playbook_versions v on v.tenant_id = p_tenant_id and v.scope_id = p.scope_id
    join memory_revisions r on r.tenant_id = p_tenant_id and r.scope_id = v.scope_id and r.playbook_version = v.version
    left join lateral (
        select s.key
        from memory_links l
        join memories s on s.tenant_id = p_tenant_id and s.id = l.source_id
        where r.change_type = 'deleted' and l.tenant_id = p_tenant_id and l.target_id = r.memory_id
          and l.relation = 'supersedes'
          and l.created_at between r.created_at - interval '10 seconds' and r.created_at + interval '10 seconds'
        limit 1
    ) merged on true
    left join lateral (
        select nv.created_at
        from memory_revisions n
        join playbook_versions nv on nv.tenant_id = p_tenant_id and nv.scope_id = n.scope_id and nv.version = n.playbook_version
        where n.tenant_id = p_tenant_id and n.memory_id = r.memory_id and n.revision > r.revision
        order by n.revision limit 1
    ) next on true
    left join lateral (
        -- CASE, because PostgreSQL uses no index for a COALESCE next to row-level security.
        select x.kind, x.trace_id from runs x
        where x.tenant_id = p_tenant_id and x.id = case when r.change_run_id is null then v.run_id else r.change_run_id end
        limit 1
    ) run on true
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook)
      and v.created_at >= p_since and v.created_at < p_until;
end $$;

create function questions.playbook_sizes(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, active_count integer, version integer, version_count bigint,
               added_count bigint, updated_count bigint, removed_count bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p.tenant_id, p.project_id, p.name playbook, d.midnight::date, last.active_count, last.version,
           coalesce(changes.version_count, 0) version_count, coalesce(changes.added_count, 0) added_count,
           coalesce(changes.updated_count, 0) updated_count, coalesce(changes.removed_count, 0) removed_count
    from playbooks p
    cross join lateral generate_series(
        greatest(date_trunc('day', p.created_at at time zone 'UTC') - interval '1 day', v_first at time zone 'UTC'),
        least(now(), v_end - interval '1 day') at time zone 'UTC', interval '1 day'
    ) d(midnight)
    cross join lateral (
        select d.midnight at time zone 'UTC' starts_at, (d.midnight + interval '1 day') at time zone 'UTC' ends_at
    ) moments
    cross join lateral (
        select v.active_count, v.version from playbook_versions v
        where v.tenant_id = p_tenant_id and v.scope_id = p.scope_id and v.created_at < moments.ends_at
        order by v.created_at desc limit 1
    ) last
    cross join lateral (
        select count(*) version_count, sum(v.added_count) added_count, sum(v.updated_count) updated_count, sum(v.removed_count) removed_count
        from playbook_versions v
        where v.tenant_id = p_tenant_id and v.scope_id = p.scope_id and v.created_at >= moments.starts_at and v.created_at < moments.ends_at
    ) changes
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook);
end $$;

create function questions.churn(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, section text, created_count bigint, changed_count bigint,
               merged_count bigint, quarantined_count bigint, released_count bigint, archived_count bigint, deleted_count bigint,
               restored_count bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select r.tenant_id, r.project_id, r.playbook, r.day, r.section,
           count(*) filter (where r.change_type = 'created'),
           count(*) filter (where r.change_type = 'changed'),
           count(*) filter (where r.change_type = 'deleted' and r.is_merged),
           count(*) filter (where r.change_type = 'quarantined'),
           count(*) filter (where r.change_type = 'released'),
           count(*) filter (where r.change_type = 'archived'),
           count(*) filter (where r.change_type = 'deleted' and not r.is_merged),
           count(*) filter (where r.change_type = 'restored')
    from (
        select p.tenant_id, p.project_id, p.name playbook, (v.created_at at time zone 'UTC')::date as day, o.section, o.change_type,
               o.change_type = 'deleted' and exists (
                   select from memory_links l
                   where l.tenant_id = p_tenant_id and l.target_id = o.memory_id and l.relation = 'supersedes'
                     and l.created_at between o.created_at - interval '10 seconds' and o.created_at + interval '10 seconds'
               ) is_merged
        from playbooks p
        join playbook_versions v on v.tenant_id = p_tenant_id and v.scope_id = p.scope_id and v.created_at >= v_first and v.created_at < v_end
        join memory_revisions o on o.tenant_id = p_tenant_id and o.scope_id = v.scope_id and o.playbook_version = v.version
        where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
          and (p_playbook is null or p.name = p_playbook)
    ) r
    group by r.tenant_id, r.project_id, r.playbook, r.day, r.section;
end $$;

-- Kaplan and Meier (1958). Time in whole days since a bullet was added. A bullet is in use while it is active: quarantine, archive and deletion
-- end its use, a release or a restore begins it again. One that was never active has no end of use. What reads `counted_verdicts` compares
-- tenants of tables instead of naming the tenant for each one: Citus sends it to all shards.
create function questions.survival(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, event text, day integer, at_risk_count bigint, event_count bigint,
               survival float8)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    with lifetimes as (
        select m.tenant_id, p.project_id, p.name playbook, m.status, m.created_at added_at, helpful.created_at first_helpful_at,
               ended.created_at left_use_at
        from playbooks p
        join memories m on m.tenant_id = p.tenant_id and m.scope_id = p.scope_id and m.key is not null
        left join lateral (
            select v.created_at from counted_verdicts v
            where v.tenant_id = m.tenant_id and v.bullet_id = m.id and v.tag = 'helpful'
            order by v.created_at limit 1
        ) helpful on true
        left join lateral (
            select r.created_at from memory_revisions r
            where m.status <> 'active' and r.tenant_id = m.tenant_id and r.memory_id = m.id
              and r.revision > (select max(a.revision) from memory_revisions a
                                where a.tenant_id = m.tenant_id and a.memory_id = m.id and a.status = 'active')
            order by r.revision limit 1
        ) ended on true
        where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
          and (p_playbook is null or p.name = p_playbook)
    ), days as (
        select l.tenant_id, l.project_id, l.playbook, e.event,
               floor(extract(epoch from coalesce(e.observed_at, now()) - l.added_at) / 86400)::int as day, e.observed_at is not null observed
        from lifetimes l
        cross join lateral (values ('left_use', l.left_use_at), ('first_helpful_verdict', l.first_helpful_at)) e(event, observed_at)
        where e.event <> 'left_use' or l.status = 'active' or e.observed_at is not null
    ), risks as (
        select tenant_id, project_id, playbook, event, day, count(*) filter (where observed) event_count,
               (sum(count(*)) over (partition by tenant_id, project_id, playbook, event order by day desc))::bigint at_risk_count
        from days
        group by tenant_id, project_id, playbook, event, day
    )
    select tenant_id, project_id, playbook, event, day, at_risk_count, event_count,
           exp(sum(case when event_count = at_risk_count then '-infinity'::float8 else ln(1 - event_count::float8 / at_risk_count) end) over curve) survival
    from risks
    window curve as (partition by tenant_id, project_id, playbook, event order by day);
end $$;

create function questions.verdicts(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, day date, section text, judge text, model text, helpful_count bigint,
               harmful_count bigint, neutral_count bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_first timestamptz := date_trunc('day', p_since, 'UTC');
    v_end timestamptz := date_trunc('day', p_until - interval '1 microsecond', 'UTC') + interval '1 day';
begin
    return query
    select p.tenant_id, p.project_id, p.name, (v.created_at at time zone 'UTC')::date, m.section, v.judge, call.model, count(*) filter (where v.tag = 'helpful'),
           count(*) filter (where v.tag = 'harmful'), count(*) filter (where v.tag = 'neutral')
    from counted_verdicts v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
    join playbooks p on p.tenant_id = v.tenant_id and p.scope_id = m.scope_id
    left join lateral (
        select l.model from llm_calls l
        where v.judge = 'llm' and l.tenant_id = v.tenant_id and l.run_id = v.run_id and l.status = 'ok'
        order by l.created_at limit 1
    ) call on true
    where v.tenant_id = p_tenant_id and v.created_at >= v_first and v.created_at < v_end
      and (p_project_id is null or p.project_id = p_project_id) and (p_playbook is null or p.name = p_playbook)
    group by p.tenant_id, p.project_id, p.name, 4, m.section, v.judge, call.model;
end $$;

create function questions.movers(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, status text, content text, helpful_count bigint,
               harmful_count bigint, neutral_count bigint, net_count bigint, helpful_rate float8, low float8, high float8)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select m.tenant_id, p.project_id, p.name, m.key, m.section, m.status, m.content, v.helpful_count, v.harmful_count, v.neutral_count,
           v.helpful_count - v.harmful_count, share.rate, share.low, share.high
    from (
        select b.tenant_id, b.bullet_id, count(*) filter (where b.tag = 'helpful') helpful_count,
               count(*) filter (where b.tag = 'harmful') harmful_count, count(*) filter (where b.tag = 'neutral') neutral_count
        from counted_verdicts b
        where b.tenant_id = p_tenant_id and b.created_at >= p_since and b.created_at < p_until
        group by b.tenant_id, b.bullet_id
    ) v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
    join playbooks p on p.tenant_id = m.tenant_id and p.scope_id = m.scope_id
    cross join lateral wilson(v.helpful_count + v.harmful_count, v.helpful_count) share
    where p.tenant_id = p_tenant_id and (p_project_id is null or p.project_id = p_project_id)
      and (p_playbook is null or p.name = p_playbook);
end $$;

-- The share of helpful verdicts of a period against that of the equally long period before it.
-- low and high: 95 % interval of the difference, Newcombe's hybrid of two Wilson intervals (1998, method 10).
create function questions.verdict_drift(p_tenant_id uuid, p_since timestamptz, p_until timestamptz, p_project_id text, p_playbook text)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, status text, content text, earlier_count bigint,
               earlier_rate float8, recent_count bigint, recent_rate float8, difference float8, low float8, high float8, is_significant
               boolean)
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
begin
    return query
    select d.tenant_id, d.project_id, d.playbook, d.key, d.section, d.status, d.content, d.earlier_count, d.earlier_rate, d.recent_count,
           d.recent_rate, d.difference, d.low, d.high, d.low > 0 or d.high < 0
    from (
        select m.tenant_id, p.project_id, p.name playbook, m.key, m.section, m.status, m.content, v.earlier_count, e.rate earlier_rate,
               v.recent_count, r.rate recent_rate, r.rate - e.rate difference,
               r.rate - e.rate - sqrt((r.rate - r.low) ^ 2 + (e.high - e.rate) ^ 2) low,
               r.rate - e.rate + sqrt((r.high - r.rate) ^ 2 + (e.rate - e.low) ^ 2) high
        from (
            select b.tenant_id, b.bullet_id,
                   count(*) filter (where b.created_at < p_since) earlier_count,
                   count(*) filter (where b.created_at < p_since and b.tag = 'helpful') earlier_helpful,
                   count(*) filter (where b.created_at >= p_since) recent_count,
                   count(*) filter (where b.created_at >= p_since and b.tag = 'helpful') recent_helpful
            from counted_verdicts b
            where b.tenant_id = p_tenant_id and b.tag <> 'neutral' and b.created_at >= case
                  when p_since < timestamptz '1970-01-01 00:00+00' or p_until > timestamptz '5000-01-01 00:00+00' then '-infinity'
                  else p_since - (p_until - p_since)
              end and b.created_at < p_until
            group by b.tenant_id, b.bullet_id
        ) v
        join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
        join playbooks p on p.tenant_id = m.tenant_id and p.scope_id = m.scope_id
        cross join lateral wilson(v.earlier_count, v.earlier_helpful) e
        cross join lateral wilson(v.recent_count, v.recent_helpful) r
        where v.earlier_count > 0 and v.recent_count > 0 and p.tenant_id = p_tenant_id
          and (p_project_id is null or p.project_id = p_project_id) and (p_playbook is null or p.name = p_playbook)
    ) d;
end $$;
