-- What answers the questions of docs/analytics.md. All views and functions of the schema `questions` run with the rights of the reader, so
-- row-level security decides which tenant they show. Logins read the schema `analytics` (login_views.py). A day is a day in UTC. A view by day
-- starts from `questions.days`, so that a condition on `day` becomes a range of an index on `created_at`.
create schema questions;

-- The days from the one before the first playbook of a tenant until today, with the moments at which a day starts and ends.
create view questions.days with (security_invoker = true) as
select f.tenant_id, d.midnight::date as day, d.midnight at time zone 'UTC' as starts_at,
       (d.midnight + interval '1 day') at time zone 'UTC' as ends_at
from (select tenant_id, min(created_at) created_at from playbooks group by tenant_id) f
cross join lateral generate_series(
    date_trunc('day', f.created_at at time zone 'UTC') - interval '1 day', now() at time zone 'UTC', interval '1 day'
) d(midnight);

create view questions.bullets with (security_invoker = true) as
select m.tenant_id, p.project_id, p.name playbook, m.key, m.section, m.title, m.when_to_use, m.content, m.tags, m.status, m.pinned,
       m.helpful, m.harmful, m.neutral, m.confidence_score, m.usefulness, coalesce(u.use_count, 0) served_count,
       u.last_used_at last_served_at, m.observation_count, m.playbook_version, m.revision, m.created_at, m.updated_at,
       born.change_actor created_by, born.change_reason created_reason, born.change_run_id created_run_id, m.id memory_id
from playbooks p
join memories m on m.tenant_id = p.tenant_id and m.scope_id = p.scope_id and m.key is not null
left join memory_usage u on u.tenant_id = m.tenant_id and u.memory_id = m.id
left join memory_revisions born on born.tenant_id = m.tenant_id and born.memory_id = m.id and born.revision = 1
where m.status <> 'deleted' and p.deleted_at is null;

create view questions.bullet_versions with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, r.key, r.revision, r.playbook_version, v.created_at changed_at,
       case when merged.key is null then r.change_type else 'merged' end change_type, merged.key merged_into,
       next.created_at valid_until, r.section, r.status, r.title, r.when_to_use, r.content, r.tags, r.pinned,
       coalesce(r.change_actor, v.actor) changed_by, coalesce(r.change_reason, v.reason) reason,
       coalesce(r.change_run_id, v.run_id) run_id, run.kind run_kind, run.trace_id, v.change_type playbook_change, r.memory_id
from playbooks p
join playbook_versions v on v.tenant_id = p.tenant_id and v.scope_id = p.scope_id
join memory_revisions r on r.tenant_id = v.tenant_id and r.scope_id = v.scope_id and r.playbook_version = v.version
left join lateral (
    select s.key
    from memory_links l
    join memories s on s.tenant_id = l.tenant_id and s.id = l.source_id
    where r.change_type = 'deleted' and l.tenant_id = r.tenant_id and l.target_id = r.memory_id
      and l.relation = 'supersedes'
      and l.created_at between r.created_at - interval '10 seconds' and r.created_at + interval '10 seconds'
    limit 1
) merged on true
left join lateral (
    select nv.created_at
    from memory_revisions n
    join playbook_versions nv on nv.tenant_id = n.tenant_id and nv.scope_id = n.scope_id and nv.version = n.playbook_version
    where n.tenant_id = r.tenant_id and n.memory_id = r.memory_id and n.revision > r.revision
    order by n.revision limit 1
) next on true
left join lateral (
    -- CASE, because PostgreSQL uses no index for a COALESCE next to row-level security.
    select x.kind, x.trace_id from runs x
    where x.tenant_id = r.tenant_id and x.id = case when r.change_run_id is null then v.run_id else r.change_run_id end
    limit 1
) run on true;

create view questions.playbook_sizes with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, last.active_count, last.version,
       coalesce(changes.version_count, 0) version_count, coalesce(changes.added_count, 0) added_count,
       coalesce(changes.updated_count, 0) updated_count, coalesce(changes.removed_count, 0) removed_count
from playbooks p
join questions.days d on d.tenant_id = p.tenant_id
cross join lateral (
    select v.active_count, v.version from playbook_versions v
    where v.tenant_id = p.tenant_id and v.scope_id = p.scope_id and v.created_at < d.ends_at
    order by v.created_at desc limit 1
) last
cross join lateral (
    select count(*) version_count, sum(v.added_count) added_count, sum(v.updated_count) updated_count, sum(v.removed_count) removed_count
    from playbook_versions v
    where v.tenant_id = p.tenant_id and v.scope_id = p.scope_id and v.created_at >= d.starts_at and v.created_at < d.ends_at
) changes;

create view questions.churn with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, c.section, c.created_count, c.changed_count, c.merged_count,
       c.quarantined_count, c.released_count, c.archived_count, c.deleted_count, c.restored_count
from playbooks p
join questions.days d on d.tenant_id = p.tenant_id
cross join lateral (
    select r.section,
           count(*) filter (where r.change_type = 'created') created_count,
           count(*) filter (where r.change_type = 'changed') changed_count,
           count(*) filter (where r.change_type = 'deleted' and r.is_merged) merged_count,
           count(*) filter (where r.change_type = 'quarantined') quarantined_count,
           count(*) filter (where r.change_type = 'released') released_count,
           count(*) filter (where r.change_type = 'archived') archived_count,
           count(*) filter (where r.change_type = 'deleted' and not r.is_merged) deleted_count,
           count(*) filter (where r.change_type = 'restored') restored_count
    from (
        select o.section, o.change_type,
               o.change_type = 'deleted' and exists (
                   select from memory_links l
                   where l.tenant_id = o.tenant_id and l.target_id = o.memory_id and l.relation = 'supersedes'
                     and l.created_at between o.created_at - interval '10 seconds' and o.created_at + interval '10 seconds'
               ) is_merged
        from playbook_versions v
        join memory_revisions o on o.tenant_id = v.tenant_id and o.scope_id = v.scope_id and o.playbook_version = v.version
        where v.tenant_id = p.tenant_id and v.scope_id = p.scope_id and v.created_at >= d.starts_at and v.created_at < d.ends_at
    ) r
    group by r.section
) c;

-- Kaplan and Meier (1958). Time in whole days since a bullet was added. A bullet is in use while it is active: quarantine, archive and deletion
-- end its use, a release or a restore begins it again. One that was never active left on its first day.
create view questions.survival with (security_invoker = true) as
with lifetimes as (
    select m.tenant_id, p.project_id, p.name playbook, m.created_at added_at, helpful.created_at first_helpful_at, ended.created_at left_use_at
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
          and r.revision > coalesce((select max(a.revision) from memory_revisions a
                                     where a.tenant_id = m.tenant_id and a.memory_id = m.id and a.status = 'active'), 0)
        order by r.revision limit 1
    ) ended on true
), days as (
    select l.tenant_id, l.project_id, l.playbook, e.event,
           floor(extract(epoch from coalesce(e.observed_at, now()) - l.added_at) / 86400)::int as day, e.observed_at is not null observed
    from lifetimes l
    cross join lateral (values ('left_use', l.left_use_at), ('first_helpful_verdict', l.first_helpful_at)) e(event, observed_at)
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

create view questions.verdicts with (security_invoker = true) as
select p.tenant_id, p.project_id, p.name playbook, d.day, c.section, c.judge, c.model, c.helpful_count, c.harmful_count, c.neutral_count
from questions.days d
cross join lateral (
    select m.scope_id, m.section, v.judge, call.model, count(*) filter (where v.tag = 'helpful') helpful_count,
           count(*) filter (where v.tag = 'harmful') harmful_count, count(*) filter (where v.tag = 'neutral') neutral_count
    from counted_verdicts v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
    left join lateral (
        select l.model from llm_calls l
        where v.judge = 'llm' and l.tenant_id = v.tenant_id and l.run_id = v.run_id and l.status = 'ok'
        order by l.created_at limit 1
    ) call on true
    where v.tenant_id = d.tenant_id and v.created_at >= d.starts_at and v.created_at < d.ends_at
    group by m.scope_id, m.section, v.judge, call.model
) c
join playbooks p on p.tenant_id = d.tenant_id and p.scope_id = c.scope_id;

create function questions.movers(p_since timestamptz, p_until timestamptz)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, status text, content text, helpful_count bigint,
               harmful_count bigint, neutral_count bigint, net_count bigint, helpful_rate float8, low float8, high float8)
language sql stable begin atomic
    select m.tenant_id, p.project_id, p.name, m.key, m.section, m.status, m.content, v.helpful_count, v.harmful_count, v.neutral_count,
           v.helpful_count - v.harmful_count, share.rate, share.low, share.high
    from (
        select b.tenant_id, b.bullet_id, count(*) filter (where b.tag = 'helpful') helpful_count,
               count(*) filter (where b.tag = 'harmful') harmful_count, count(*) filter (where b.tag = 'neutral') neutral_count
        from counted_verdicts b
        where b.created_at >= p_since and b.created_at < p_until
        group by b.tenant_id, b.bullet_id
    ) v
    join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
    join playbooks p on p.tenant_id = m.tenant_id and p.scope_id = m.scope_id
    cross join lateral wilson(v.helpful_count + v.harmful_count, v.helpful_count) share; end;

-- The share of helpful verdicts of a period against that of the equally long period before it.
-- low and high: 95 % interval of the difference, Newcombe's hybrid of two Wilson intervals (1998, method 10).
create function questions.verdict_drift(p_since timestamptz, p_until timestamptz)
returns table (tenant_id uuid, project_id text, playbook text, key text, section text, status text, content text,
               earlier_count bigint, earlier_rate float8, recent_count bigint, recent_rate float8, difference float8, low float8, high float8,
               is_significant boolean)
language sql stable begin atomic
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
            where b.tag <> 'neutral' and b.created_at >= case
                  when p_since < timestamptz '1970-01-01 00:00+00' or p_until > timestamptz '5000-01-01 00:00+00' then '-infinity'
                  else p_since - (p_until - p_since)
              end and b.created_at < p_until
            group by b.tenant_id, b.bullet_id
        ) v
        join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
        join playbooks p on p.tenant_id = m.tenant_id and p.scope_id = m.scope_id
        cross join lateral wilson(v.earlier_count, v.earlier_helpful) e
        cross join lateral wilson(v.recent_count, v.recent_helpful) r
        where v.earlier_count > 0 and v.recent_count > 0
    ) d; end;

create view questions.movers with (security_invoker = true) as
select * from questions.movers(now() - interval '30 days', now());

create view questions.verdict_drift with (security_invoker = true) as
select * from questions.verdict_drift(now() - interval '30 days', now());
