-- name: list_lost_runs
-- Runs that are queued or whose lease has expired, and that have no ticket: a crash between two stores lost it, or it was deleted.
-- MATERIALIZED: the queue and the runs may be on different servers (docs/scale.md).
with overdue as materialized (
    select r.id, r.kind
    from runs r
    where r.tenant_id = :tenant and r.id <> :except_run_id
      and r.state in ('queued', 'running') and r.updated_at < now() - interval '2 minutes'
      and (r.state = 'queued' or r.lease_until < now() - interval '2 minutes')
)
select o.id, o.kind from overdue o
where not exists (select from tickets t where t.run_id = o.id and t.lane = :tenant)
limit 1000

-- name: next_upkeep
-- When something of the tenant is due next: an open trace without new events ends, or a run may have lost its ticket. At the latest in a week.
select least(
    now() + interval '7 days' * (0.9 + 0.1 * random()),
    (select min(t.updated_at) + make_interval(secs => :idle_seconds) from traces t where t.tenant_id = :tenant and t.state = 'open'),
    (select now() + interval '15 minutes'
     where exists (select from runs r where r.tenant_id = :tenant and r.state in ('queued', 'running') and r.id <> :run_id))
)

-- name: next_expiry
-- When the retention of something of the tenant ends next: of the oldest row of each kind and project. The lists are parallel: the projects
-- and the days of their policies, null for no limit. Of the model calls, the oldest 1,000 are read.
select min(e.expires_at)
from (
    select x.created_at + make_interval(days => x.days) expires_at
    from unnest(cast(:projects as text[]), cast(:event_days as int[]), cast(:trace_days as int[]), cast(:retrieval_days as int[]),
                cast(:llm_call_days as int[])) p(project_id, event_days, trace_days, retrieval_days, llm_call_days)
    cross join lateral (
        (
            select t.created_at, p.trace_days days from traces t
            where t.tenant_id = :tenant and t.project_id = p.project_id and t.state = 'closed' and p.trace_days is not null
            order by t.created_at limit 1
        )
        union all
        (
            select t.created_at, p.event_days from traces t
            where t.tenant_id = :tenant and t.project_id = p.project_id and t.state = 'closed' and p.event_days is not null
              and t.events_deleted_at is null
            order by t.created_at limit 1
        )
        union all
        select min(r.created_at), p.retrieval_days
        from scopes s
        cross join lateral (
            select o.created_at from retrievals o where o.tenant_id = :tenant and o.scope_id = s.id order by o.created_at limit 1
        ) r
        where s.tenant_id = :tenant and s.project_id = p.project_id
        union all
        select min(c.created_at), p.llm_call_days
        from (select l.created_at, l.project_id from llm_calls l where l.tenant_id = :tenant order by l.created_at limit 1000) c
        where p.llm_call_days is not null and coalesce(c.project_id, 'default') = p.project_id
    ) x
    union all
    select min(k.created_at) + cast(:response_age as interval) from idempotency_keys k where k.tenant_id = :tenant
    union all
    select min(r.created_at) + cast(:reply_age as interval) from llm_replies r where r.tenant_id = :tenant
) e

-- name: start_period
-- The start of a scheduled task, if it was not started since the beginning of its period. Exactly one caller gets a row.
insert into maintenance_tasks as t (tenant_id, task, started_at, run_id)
values (:tenant, :task, now(), :run_id)
on conflict (tenant_id, task) do update
set started_at = excluded.started_at, run_id = excluded.run_id
where t.tenant_id = :tenant and t.started_at < :period_start
returning t.task

-- name: delete_old_runs
-- Deletes a batch of the runs that ended and were created before a time, the oldest first.
with batch as materialized (
    select r.id from runs r
    where r.tenant_id = :tenant and r.created_at < :before and r.state not in ('queued', 'running')
    order by r.created_at limit :batch_size
)
delete from runs r
where r.tenant_id = :tenant and r.id = any(array(select id from batch))
returning 1

-- name: delete_idempotency_keys
-- Deletes a batch of the idempotency keys that are older than a time.
with batch as materialized (
    select k.route, k.key from idempotency_keys k where k.tenant_id = :tenant and k.created_at < :before limit :batch_size
)
delete from idempotency_keys k
using batch b
where k.tenant_id = :tenant and k.route = b.route and k.key = b.key
returning 1

-- name: delete_reservations
-- Deletes a batch of the budget reservations that are older than a time.
with batch as materialized (
    select r.id from budget_reservations r where r.tenant_id = :tenant and r.created_at < :before limit :batch_size
)
delete from budget_reservations r
where r.tenant_id = :tenant and r.id = any(array(select id from batch))
returning 1

-- name: delete_stored_replies
-- Deletes a batch of the replies of models that are older than a time.
with batch as materialized (
    select r.run_id, r.request_hash from llm_replies r where r.tenant_id = :tenant and r.created_at < :before limit :batch_size
)
delete from llm_replies r
using batch b
where r.tenant_id = :tenant and r.run_id = b.run_id and r.request_hash = b.request_hash
returning 1

-- name: delete_budget_totals
-- Deletes a batch of the totals of budgets whose period started before a time, and the alerts of these periods.
with alerts as (
    delete from budget_alerts a where a.tenant_id = :tenant and a.starts_on < cast(:before as timestamptz)::date
),
batch as materialized (
    select t.period, t.starts_on, t.project_id, t.purpose
    from budget_totals t where t.tenant_id = :tenant and t.starts_on < cast(:before as timestamptz)::date limit :batch_size
)
delete from budget_totals t
using batch b
where t.tenant_id = :tenant and t.period = b.period and t.starts_on = b.starts_on
  and t.project_id = b.project_id and t.purpose = b.purpose
returning 1

-- name: delete_retrievals
-- Deletes a batch of the retrievals of a project that are older than a time, by the index on scope and time.
with batch as materialized (
    select o.id
    from scopes s
    cross join lateral (
        select r.id from retrievals r
        where r.tenant_id = :tenant and r.scope_id = s.id and r.created_at < :before
        limit :batch_size
    ) o
    where s.tenant_id = :tenant and s.project_id = :project
    limit :batch_size
)
delete from retrievals r
where r.tenant_id = :tenant and r.id = any(array(select id from batch))
returning 1

-- name: expired_traces
select t.id from traces t
where t.tenant_id = :tenant and t.project_id = :project and t.created_at < :before and t.state = 'closed'
order by t.created_at limit :batch_size

-- name: delete_events
-- Deletes the events of a batch of traces that are older than a time. The mark on a trace excludes it from the next batch.
with batch as materialized (
    select t.id from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.created_at < :before and t.events_deleted_at is null and t.state = 'closed'
    order by t.created_at limit :batch_size
),
deleted as (
    delete from trace_events e where e.tenant_id = :tenant and e.trace_id = any(array(select id from batch))
)
update traces t set events_deleted_at = now()
where t.tenant_id = :tenant and t.id = any(array(select id from batch))
returning 1

-- name: delete_model_calls
-- Deletes a batch of the records of model calls of a project that are older than a time.
with batch as materialized (
    select c.id from llm_calls c
    where c.tenant_id = :tenant and c.created_at < :before and coalesce(c.project_id, 'default') = :project
    limit :batch_size
)
delete from llm_calls c
where c.tenant_id = :tenant and c.id = any(array(select id from batch))
returning 1

-- name: count_problem_runs
-- Runs by problem and kind: 'dead'; 'unknown_kind', which wait for a newer worker; 'stuck', which maintenance should have found, because
-- their lease ended long ago or they have no ticket.
with problems as materialized (
    select r.id, r.kind,
           case when r.state = 'dead' then 'dead' when r.error ->> 'code' = 'unknown_kind' then 'unknown_kind'
                when r.state = 'running' then 'stuck' else 'queued' end problem
    from runs r
    where r.tenant_id = :tenant
      and (r.state = 'dead'
           or r.state = 'queued' and (r.error ->> 'code' = 'unknown_kind' or r.updated_at < now() - cast(:limit as interval))
           or r.state = 'running' and r.lease_until < now() - cast(:limit as interval))
)
select case when p.problem = 'queued' then 'stuck' else p.problem end problem, p.kind, count(*)
from problems p
where p.problem <> 'queued' or not exists (select from tickets t where t.run_id = p.id and t.lane = :tenant)
group by 1, p.kind

-- name: count_keys
-- API keys that are not revoked: usable, expired, and those that expire soon.
select count(*) filter (where k.expires_at is null or k.expires_at > now()) usable,
       count(*) filter (where k.expires_at <= now()) expired,
       count(*) filter (where k.expires_at > now() and k.expires_at <= now() + cast(:warning as interval)) expiring
from api_keys k
where k.tenant_id = :tenant and k.revoked_at is null

-- name: count_conflicts
-- Traces whose reported outcome a check contradicts, and those of them where the client declared no check: an older rule decided.
select count(*) total,
       count(*) filter (where not exists (
           select from trace_evaluations e where e.tenant_id = :tenant and e.trace_id = t.id and e.is_declared)) undeclared
from traces t
where t.tenant_id = :tenant and t.conflict is not null

-- name: prunable_memories
-- Active memories whose importance × strength is below a limit and that were not used or changed for some days, weakest first. Excluded are
-- bullets, pinned memories, those with several observations, and those that another memory was derived from.
-- Strength is 1 in the first days without use or change, then decays at `rate` per day, and twice as fast when stale.
select m.id, m.kind, m.project_id, left(m.content, 120) excerpt, m.importance, s.strength, a.used_at
from memories m
left join memory_usage u on u.tenant_id = :tenant and u.memory_id = m.id
cross join lateral (select greatest(m.created_at, m.updated_at, u.last_used_at) used_at) a
cross join lateral (select extract(epoch from now() - a.used_at)::float8 / 86400 days) d
cross join lateral (
    select greatest(:floor, exp(-cast(:rate as float8) * (greatest(0, d.days - :protected_days) + greatest(0, d.days - :stale_days)))) strength
) s
where m.tenant_id = :tenant and m.status = 'active' and m.kind in ('reflection', 'strategy', 'insight', 'episode', 'chunk')
  and (cast(:ids as uuid[]) is null or m.id = any(cast(:ids as uuid[])))
  and not m.pinned and m.observation_count = 1 and m.importance * s.strength < :below
  and a.used_at < now() - make_interval(days => :min_age_days)
  and not exists (
      select from memory_links l
      where l.tenant_id = :tenant and l.target_id = m.id and l.relation = 'derived_from')
order by m.importance * s.strength, m.id
limit :limit

-- name: recent_episodes
-- The episodes of a project in a period with at least some importance, the most important first, with the error and the playbook of their
-- traces. Results of maintenance are excluded.
select m.id, m.content, m.importance, coalesce(m.outcome, t.outcome) outcome, coalesce(m.error_category, t.error ->> 'error_category') error_category,
       m.trace_id, t.error, t.playbook
from memories m
left join traces t on t.tenant_id = :tenant and t.id = m.trace_id
where m.tenant_id = :tenant and m.project_id = :project and m.kind = 'episode' and m.status = 'active'
  and m.created_at >= cast(:since as timestamptz) and m.created_at < cast(:until as timestamptz)
  and m.importance >= :min_importance and m.source <> 'session_summary'
order by m.importance desc, m.created_at desc, m.id
limit :limit

-- name: chosen_traces
-- The closed traces with these IDs or of these sessions, the oldest first.
select t.id, t.project_id, t.session_id, coalesce(t.outcome, 'without outcome') outcome
from traces t
where t.tenant_id = :tenant and t.state = 'closed'
  and t.id in (
      select unnest(cast(:trace_ids as uuid[]))
      union all
      select s.id from traces s where s.tenant_id = :tenant and s.session_id = any(cast(:session_ids as text[])))
order by t.created_at, t.id
limit :limit

-- name: chosen_episodes
-- These traces, the oldest first, with the episodes of those that have one.
select m.id, coalesce(m.content, t.task_description, t.query, '') content, coalesce(m.importance, 0.5) importance, t.outcome,
       coalesce(m.error_category, t.error ->> 'error_category') error_category, t.id trace_id, t.error, t.playbook
from traces t
left join lateral (
    select e.id, e.content, e.importance, e.error_category
    from memories e
    where e.tenant_id = :tenant and e.trace_id = t.id and e.kind = 'episode' and e.status = 'active'
    order by e.created_at, e.id
    limit 1
) m on true
where t.tenant_id = :tenant and t.id = any(cast(:trace_ids as uuid[]))
order by t.created_at, t.id

-- name: trace_outcomes
-- The traces of a project that were stored in a period, by outcome.
select coalesce(t.outcome, 'without outcome') outcome, count(*) trace_count
from traces t
where t.tenant_id = :tenant and t.project_id = :project
  and t.created_at >= cast(:since as timestamptz) and t.created_at < cast(:until as timestamptz)
group by t.outcome
order by t.outcome

-- name: dreamed_statements
-- The newest reflections of dreaming in a project that nobody else changed.
select m.id, m.content
from memories m
where m.tenant_id = :tenant and m.project_id = :project and m.kind = 'reflection' and m.status = 'active'
  and m.source = 'dreaming' and m.change_actor = :actor and not m.pinned
order by m.created_at desc, m.id desc
limit :limit

-- name: dreamed_strategies
-- The strategies of these reflections of dreaming.
select l.source_id id, l.target_id reflection_id
from memory_links l
join memories m on m.tenant_id = :tenant and m.id = l.source_id and m.kind = 'strategy' and m.source = 'dreaming'
where l.tenant_id = :tenant and l.target_id = any(cast(:ids as uuid[])) and l.target_kind = 'memory' and l.relation = 'derived_from'

-- name: recent_projects
-- The projects with an episode since a time.
select s.project_id from scopes s
where s.tenant_id = :tenant and s.type = 'kind' and s.name = 'episode'
  and exists (
      select from memories m
      where m.tenant_id = :tenant and m.project_id = s.project_id and m.kind = 'episode' and m.created_at >= cast(:since as timestamptz))
order by s.project_id

-- name: sessions_to_summarize
-- Reads a page of the episodes that were stored since a time, the oldest first. Returns the last episode of the page, how many it has, and
-- those of its sessions that have enough episodes, one of them newer than the summary.
with page as materialized (
    select e.*
    from scopes s
    cross join lateral (
        select m.created_at, m.id, m.project_id, m.session_id from memories m
        where m.tenant_id = :tenant and m.project_id = s.project_id and m.kind = 'episode'
          and (m.created_at, m.id) > (cast(:after_time as timestamptz), cast(:after_id as uuid))
        order by m.created_at, m.id
        limit :page_size
    ) e
    where s.tenant_id = :tenant and s.type = 'kind' and s.name = 'episode'
    order by e.created_at, e.id
    limit :page_size
),
candidates as materialized (
    select p.project_id, p.session_id, min(p.created_at) first_at
    from page p where p.session_id is not null
    group by p.project_id, p.session_id
),
sessions as (
    select c.project_id, c.session_id
    from candidates c
    cross join lateral (
        select count(*) episode_count, max(e.created_at) last_at
        from (
            select m.created_at from memories m
            where m.tenant_id = :tenant and m.project_id = c.project_id and m.session_id = c.session_id
              and m.kind = 'episode' and m.status = 'active' and m.source <> 'session_summary'
            order by m.created_at desc
            limit :min_episodes
        ) e
    ) n
    where n.episode_count = :min_episodes
      and not exists (
          select from memories m
          where m.tenant_id = :tenant and m.project_id = c.project_id and m.session_id = c.session_id
            and m.kind = 'episode' and m.status = 'active' and m.source = 'session_summary' and m.updated_at >= n.last_at)
    order by c.first_at, c.project_id, c.session_id
    limit :limit
)
select (select count(*) from page) page_count,
       (select max(p.created_at) from page p) last_time,
       (select p.id from page p order by p.created_at desc, p.id desc limit 1) last_id,
       array(select array[s.project_id, s.session_id] from sessions s) sessions

-- name: session_episodes
-- The summary of a session and its newest episodes, in the order in which their traces arrived. An episode is written later, when
-- a worker has read its trace.
select m.id, m.content, m.importance, m.outcome, m.trace_id, m.source, coalesce(t.created_at, m.created_at) created_at
from (
    (
        select * from memories e
        where e.tenant_id = :tenant and e.project_id = :project and e.session_id = :session
          and e.kind = 'episode' and e.status = 'active' and e.source = 'session_summary'
        limit 1
    )
    union all
    (
        select * from memories e
        where e.tenant_id = :tenant and e.project_id = :project and e.session_id = :session
          and e.kind = 'episode' and e.status = 'active' and e.source <> 'session_summary'
        order by e.created_at desc, e.id desc
        limit :limit
    )
) m
left join traces t on t.tenant_id = :tenant and t.id = m.trace_id
order by coalesce(t.created_at, m.created_at), m.id

-- name: keep_episodes
-- Keeps these episodes from an erasure until the transaction ends. Returns those that are not erased.
select m.id from memories m
where m.tenant_id = :tenant and m.id = any(cast(:ids as uuid[])) and m.content <> ''
order by m.id for share

-- name: keep_traces
-- The same for traces.
select t.id from traces t where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[])) order by t.id for key share

-- name: memories_to_relate
-- A page of active memories by ID, with the task of their traces and the names of the tools.
select m.id, m.seq, m.scope_id, m.project_id, m.kind, left(m.content, 20000) content, m.error_category, m.metadata -> 'tools' tools,
       m.metadata ->> 'task_description' task
from memories m
where m.tenant_id = :tenant and m.id > :after and m.status = 'active'
  and m.kind in ('reflection', 'strategy', 'insight', 'episode', 'bullet')
order by m.id
limit :batch_size

-- name: add_entities
-- Adds entities and their mentions; existing ones stay. The lists are parallel.
with sent as materialized (
    select * from unnest(cast(:memories as uuid[]), cast(:ids as uuid[]), cast(:projects as text[]), cast(:types as text[]),
                         cast(:names as text[])) g(memory_id, id, project_id, type, name)
),
added as (
    insert into entities (tenant_id, id, project_id, type, name)
    select distinct on (s.project_id, s.type, s.name) cast(:tenant as uuid), s.id, s.project_id, s.type, s.name from sent s
    order by s.project_id, s.type, s.name
    on conflict (tenant_id, project_id, type, name) do nothing
    returning id, project_id, type, name
),
known as (
    select a.id, a.project_id, a.type, a.name from added a
    union all
    select e.id, e.project_id, e.type, e.name from entities e
    where e.tenant_id = :tenant and (e.project_id, e.type, e.name) in (select s.project_id, s.type, s.name from sent s)
)
insert into memory_entities (tenant_id, memory_id, entity_id)
select distinct cast(:tenant as uuid), s.memory_id, k.id from sent s join known k using (project_id, type, name)
on conflict do nothing
returning 1

-- name: join_clusters
-- The five nearest older memories of the same kind and project for each memory, if they are near enough, with their cluster, tools and
-- task; the nearest first.
select v.seq, n.id nearest_id, coalesce(c.cluster_id, n.id) cluster_id, n.tools, n.task
from memory_vectors v
cross join lateral (
    select m.id, -(o.embedding <#> v.embedding) cosine, m.metadata -> 'tools' tools, m.metadata ->> 'task_description' task
    from memory_vectors o
    join memories m on m.tenant_id = :tenant and m.seq = o.seq
    where o.tenant_id = :tenant and o.scope_id = v.scope_id and o.model_label_id = v.model_label_id and o.seq < v.seq
    order by o.embedding <#> v.embedding limit 5
) n
left join memory_clusters c on c.tenant_id = :tenant and c.memory_id = n.id
where v.tenant_id = :tenant and v.seq = any(cast(:seqs as bigint[])) and v.scope_id = any(cast(:scopes as int[]))
  and n.cosine >= :min_cosine
order by v.seq, n.cosine desc
