-- name: bullets_as_of
-- The bullets of a playbook at a version, all or those with these IDs. A bullet that has not changed since is read from `memories`, any
-- other from the span that includes the version: for a whole playbook a short index range per length class (OFFSET 0 prevents another
-- plan), for a few bullets one probe each. Counters are the current ones, because verdicts are never undone.
-- `searchable_text` is null if it follows from the other texts, and empty, zero and default values are null, because sending and
-- reading them takes long for ten thousand bullets. Not sorted here: PostgreSQL would hold all texts in memory, and the caller sorts in a
-- tenth of the time.
select m.key, m.section, m.content,
       case when m.searchable_text <> m.content or m.title <> '' or m.when_to_use <> '' or m.keywords <> '{}'
            then m.searchable_text end searchable_text,
       nullif(m.keywords, '{}') keywords, m.when_to_use, m.title, nullif(m.tags, '{}') tags, nullif(m.status, 'active') status,
       nullif(m.pinned, false) pinned, nullif(m.awaiting_confirmation, false) awaiting_confirmation,
       m.metadata ->> 'source_trajectory' source_trajectory, nullif(m.helpful, 0) helpful,
       nullif(m.harmful, 0) harmful, nullif(m.neutral, 0) neutral, coalesce(m.position::bigint, 2147483648) as position, m.seq, m.id memory_id
from memories m
where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and m.playbook_version <= cast(:version as int)
  and m.status <> 'deleted'
  and (cast(:ids as uuid[]) is null or m.id = any(:ids))
union all
select m.key, s.section, s.content, s.searchable_text, nullif(s.keywords, '{}'), s.when_to_use, s.title, nullif(s.tags, '{}'),
       nullif(s.status, 'active'), nullif(s.pinned, false), nullif(s.awaiting_confirmation, false),
       m.metadata ->> 'source_trajectory', nullif(m.helpful, 0), nullif(m.harmful, 0), nullif(m.neutral, 0),
       coalesce(m.position::bigint, 2147483648), m.seq, m.id
from generate_series(0, 30) c(length_class)
cross join lateral (
    select b.*
    from bullet_spans b
    where b.tenant_id = :tenant and b.scope_id = :scope and b.length_class = c.length_class
      and b.until_version > :version and b.until_version < :version + (2::bigint << c.length_class)
      and b.from_version <= :version
    offset 0
) s
join memories m on m.id = s.bullet_id
where :ids is null and m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and s.status <> 'deleted'
union all
select m.key, s.section, s.content, s.searchable_text, nullif(s.keywords, '{}'), s.when_to_use, s.title, nullif(s.tags, '{}'),
       nullif(s.status, 'active'), nullif(s.pinned, false), nullif(s.awaiting_confirmation, false),
       m.metadata ->> 'source_trajectory', nullif(m.helpful, 0), nullif(m.harmful, 0), nullif(m.neutral, 0),
       coalesce(m.position::bigint, 2147483648), m.seq, m.id
from unnest(:ids) g(bullet_id)
cross join lateral (
    select b.*
    from bullet_spans b
    where b.tenant_id = :tenant and b.bullet_id = g.bullet_id and b.until_version > :version and b.from_version <= :version
    order by b.until_version
    limit 1
) s
join memories m on m.id = g.bullet_id
where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and s.status <> 'deleted'

-- name: different_bullets
-- The first bullets, by key, that differ between two versions (:first and :last, in any order), and how many do.
-- The state at each version is read as in `bullets_as_of`, without what holds at both versions. Its fields decide, not its revision: a
-- change that was undone in between is no difference.
with ends as (
    select least(cast(:first as int), cast(:last as int)) low, greatest(cast(:first as int), cast(:last as int)) high
),
states as materialized (
    select m.id, m.key, row(m.section, m.title, m.when_to_use, m.content, m.keywords, m.tags, m.status, m.pinned, m.awaiting_confirmation,
                            nullif(m.searchable_text, concat_ws(E'\n', nullif(m.when_to_use, ''), nullif(m.title, ''), nullif(m.content, ''),
                                                                nullif(array_to_string(m.keywords, ' '), ''))))::text fields
    from ends e
    join memories m on m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and m.status <> 'deleted'
        and m.playbook_version > e.low and m.playbook_version <= e.high
    union all
    select m.id, m.key, row(s.section, s.title, s.when_to_use, s.content, s.keywords, s.tags, s.status, s.pinned, s.awaiting_confirmation,
                            s.searchable_text)::text
    from ends e
    cross join lateral (values (e.low), (e.high)) v(version)
    cross join generate_series(0, 30) c(length_class)
    cross join lateral (
        select b.*
        from bullet_spans b
        where b.tenant_id = :tenant and b.scope_id = :scope and b.length_class = c.length_class
          and b.until_version > v.version and b.until_version < v.version + (2::bigint << c.length_class) and b.from_version <= v.version
          and (b.from_version > e.low or b.until_version <= e.high)
        offset 0
    ) s
    join memories m on m.id = s.bullet_id
    where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and s.status <> 'deleted'
)
select d.id, count(*) over () difference_count
from (select s.id, s.key from states s group by s.id, s.key having count(*) = 1 or min(s.fields) <> max(s.fields)) d
order by d.key
limit :limit

-- name: bullet_effects
-- The outcomes of the agent runs of a period with each bullet of a playbook and without it: one page of bullets, by key.
select e.key, e.status,
       jsonb_object_agg(e.basis, jsonb_build_object(
           'with', jsonb_build_object('runs', e.with_runs, 'successes', e.with_successes, 'rate', e.with_rate),
           'without', jsonb_build_object('runs', e.without_runs, 'successes', e.without_successes, 'rate', e.without_rate),
           'difference', e.difference,
           'interval', jsonb_build_object('low', e.low, 'high', e.high), 'always_with', e.always_with)) sides
from questions.effects(
    :tenant, coalesce(cast(:since as timestamptz), '-infinity'), coalesce(cast(:until as timestamptz), 'infinity'), :project, :playbook
) e
where (cast(:after as text) is null or e.key > cast(:after as text)) and (cast(:key as text) is null or e.key = cast(:key as text))
group by e.key, e.status
order by e.key
limit :limit

-- name: harmful_bullets
-- Active bullets that may need quarantine: enough harmful verdicts, and at least one since their last release. With the verdicts on
-- the other bullets of the playbook. Pinned bullets are excluded.
select m.key, m.helpful, m.harmful, t.helpful - m.helpful others_helpful, t.harmful - m.harmful others_harmful
from memories m
cross join (
    select sum(o.helpful) helpful, sum(o.harmful) harmful
    from memories o
    where o.tenant_id = :tenant and o.scope_id = :scope and o.key is not null and o.status <> 'deleted'
) t
where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and m.status = 'active' and not m.pinned
  and m.harmful >= :min_harmful and m.harmful > m.helpful and m.harmful > m.harmful_at_release
order by m.id

-- name: unproven_harmful_verdicts
-- How many of the harmful verdicts on these bullets are not credible, by bullet.
-- A client could invent traces, so a counted harmful verdict is credible once for each retrieval that handed out the bullet. Without such a
-- retrieval, verdicts that a client sends count once for each API key, and those of the service once for each trace. All verdicts of a
-- person count, and so do counts of an imported file, which have no verdicts.
select m.key, count(*) - count(distinct case
           when v.judge = 'human' then v.id::text
           when r.id is not null then r.id::text
           when v.run_id is not null then v.trace_id::text
           else coalesce(v.actor, '')
       end) verdict_count
from counted_verdicts v
join memories m on m.tenant_id = v.tenant_id and m.id = v.bullet_id
left join traces t on t.tenant_id = v.tenant_id and t.id = v.trace_id
left join retrievals r on r.tenant_id = v.tenant_id and r.id = coalesce(v.retrieval_id, t.retrieval_id)
    and r.scope_id = m.scope_id and m.key = any(r.bullet_keys)
where v.tenant_id = :tenant and m.scope_id = :scope and m.key = any(cast(:keys as text[])) and v.tag = 'harmful'
group by m.key

-- name: provenance
-- The origin of a bullet: the memories and traces that are linked from it, up to a depth of 8, each one once.
with recursive origin(id, relation, target_kind, target_id, depth) as (
    select l.source_id, l.relation, l.target_kind, l.target_id, 1
    from memory_links l
    where l.tenant_id = :tenant and l.source_id = :bullet and l.relation in ('derived_from', 'supersedes')
    union
    select l.source_id, l.relation, l.target_kind, l.target_id, o.depth + 1
    from origin o join memory_links l on l.tenant_id = :tenant and l.source_id = o.target_id
    where o.target_kind = 'memory' and o.depth < 8 and l.relation in ('derived_from', 'supersedes')
)
select o.id source_id, o.relation, o.target_kind, o.target_id, min(o.depth) depth,
       m.kind, m.key, m.content, m.source_event_ids, coalesce(m.trace_id, t.id) trace_id, t.task_description, t.outcome,
       (select jsonb_agg(jsonb_build_object('event_id', e.event_id, 'seq', e.seq, 'event_type', e.event_type,
                                            'content', left(e.content, 2000)) order by e.seq)
        from trace_events e
        where e.tenant_id = :tenant and e.trace_id = m.trace_id and e.event_id = any(m.source_event_ids)) events
from origin o
left join memories m on m.tenant_id = :tenant and m.id = o.target_id and o.target_kind = 'memory'
left join traces t on t.tenant_id = :tenant and t.id = o.target_id and o.target_kind = 'trace'
group by o.id, o.relation, o.target_kind, o.target_id, m.kind, m.key, m.content, m.source_event_ids, m.trace_id, t.id,
         t.task_description, t.outcome
order by depth, o.target_kind, o.target_id

-- name: refuting_verdicts
-- The harmful verdicts of models and people on these bullets that no newer helpful verdict follows. That of a model counts as it was
-- said, before its limits: they are for counters.
select v.bullet_id, v.trace_id, v.judge
from bullet_verdicts v
where v.tenant_id = :tenant and v.bullet_id = any(cast(:ids as uuid[])) and v.judge <> 'outcome' and coalesce(v.evidence ->> 'said', v.tag) = 'harmful'
  and not exists (select from bullet_verdicts n
                  where n.tenant_id = :tenant and n.bullet_id = v.bullet_id and n.judge <> 'outcome' and n.created_at > v.created_at
                    and coalesce(n.evidence ->> 'said', n.tag) = 'helpful')

-- name: contradicted_bullets
-- The keys of the active bullets that a bullet contradicts.
select m.key
from memory_links l
join memories m on m.tenant_id = :tenant and m.id = l.target_id and m.kind = 'bullet' and m.status = 'active'
where l.tenant_id = :tenant and l.source_id = :bullet and l.relation = 'contradicts' and l.target_kind = 'memory'

-- name: bullet_versions
-- The versions of one bullet, oldest first, from a revision on. A deletion is a merge if the same transaction linked the survivor.
select r.revision, r.playbook_version, case when survivor.key is null then r.change_type else 'merged' end change_type,
       survivor.key merged_into, r.section, r.title, r.when_to_use, r.content, r.tags, r.status, r.pinned,
       coalesce(r.change_reason, v.reason) reason, coalesce(r.change_actor, v.actor) actor, coalesce(r.change_run_id, v.run_id) run_id,
       coalesce(v.created_at, r.created_at) created_at
from memory_revisions r
left join playbook_versions v on v.tenant_id = :tenant and v.scope_id = r.scope_id and v.version = r.playbook_version
left join lateral (
    select m.key
    from memory_links l
    join memories m on m.tenant_id = :tenant and m.id = l.source_id
    where r.change_type = 'deleted' and l.tenant_id = :tenant and l.target_id = r.memory_id and l.relation = 'supersedes'
      and l.created_at between r.created_at - interval '10 seconds' and r.created_at + interval '10 seconds'
    limit 1
) survivor on true
where r.tenant_id = :tenant and r.memory_id = :bullet and r.revision > :after
order by r.revision
limit :limit

-- name: count_uses
-- Adds one use to the bullets for each retrieval of a period that returned them.
insert into memory_usage as u (tenant_id, memory_id, use_count, last_used_at)
select m.tenant_id, m.id, count(*), max(r.created_at)
from playbooks p
join retrievals r on r.tenant_id = :tenant and r.scope_id = p.scope_id and r.created_at > :since and r.created_at <= :until
cross join unnest(r.bullet_keys) k(key)
join memories m on m.tenant_id = :tenant and m.scope_id = p.scope_id and m.key = k.key
where p.tenant_id = :tenant
group by m.tenant_id, m.id
order by m.id
on conflict (tenant_id, memory_id) do update
set use_count = u.use_count + excluded.use_count, last_used_at = greatest(u.last_used_at, excluded.last_used_at)

-- name: verdict_references
-- Whether the trace and the retrieval that a verdict names exist in this project and playbook, and the playbook's scope.
select (
           select p.scope_id from playbooks p where p.tenant_id = :tenant and p.project_id = :project and p.name = :playbook
       ) scope_id,
       exists (
           select from traces t
           where t.tenant_id = :tenant and t.id = cast(:trace as uuid) and t.project_id = :project
       ) has_trace,
       exists (
           select from retrievals r
           join playbooks p on p.tenant_id = :tenant and p.scope_id = r.scope_id
           where r.tenant_id = :tenant and r.id = cast(:retrieval as uuid)
             and p.project_id = :project and p.name = :playbook
       ) has_retrieval

-- name: retrieval_secret
-- The secret with which the tenant's retrieval IDs are signed. The update changes nothing; without it, an existing row would not be returned.
insert into retrieval_secrets (tenant_id, secret) values (:tenant, :new_secret)
on conflict (tenant_id) do update set secret = retrieval_secrets.secret
returning secret

-- name: delete_bullets
-- Sets the status of all bullets of a playbook to `deleted`. Locks them in the order of all other changes of several bullets.
with bullets as materialized (
    select m.id
    from memories m
    where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and m.status <> 'deleted'
    order by m.id
    for update
)
update memories m
set status = 'deleted', playbook_version = :version, change_reason = :reason, change_actor = :actor, change_run_id = cast(:run as uuid)
from bullets b
where m.tenant_id = :tenant and m.id = b.id

-- name: count_reviews
-- The playbooks of a project, with their quarantined bullets and waiting proposals.
select p.name, p.active_count,
       (select count(*) from memories m where m.tenant_id = :tenant and m.scope_id = p.scope_id and m.kind = 'bullet' and m.status = 'quarantined'),
       (select count(*) from playbook_proposals q where q.tenant_id = :tenant and q.scope_id = p.scope_id and q.state = 'waiting')
from playbooks p
where p.tenant_id = :tenant and p.project_id = :project and p.deleted_at is null
order by p.name
limit 200

-- name: served_traces
-- The latest retrievals that handed out one bullet, with the first trace that names each of them.
select r.id, r.kind, r.query, r.created_at, t.id trace_id, t.outcome, t.task_description
from retrievals r
left join lateral (
    select t.id, t.outcome, t.task_description
    from traces t
    where t.tenant_id = :tenant and t.retrieval_id = r.id
    order by t.created_at, t.id
    limit 1
) t on true
where r.tenant_id = :tenant and r.scope_id = :scope and r.created_at > now() - interval '90 days' and :key = any(r.bullet_keys)
order by r.created_at desc
limit :limit

-- name: served_outcomes
-- How the agent runs ended that had one bullet in their prompt, of its last 1,000 retrievals, and how many have a verdict on it that counts.
-- A run is known as in `analytics.effects`. Citus does not plan the view beside tables that compare with a constant.
with judged as materialized (
    select v.trace_id from counted_verdicts v where v.tenant_id = :tenant and v.bullet_id = :bullet
)
select count(*) run_count, count(*) filter (where t.effective_outcome = 'success') success_count,
       count(*) filter (where exists (select from judged j where j.trace_id = t.id)) judged_count
from (
    select r.id from retrievals r
    where r.tenant_id = :tenant and r.scope_id = :scope and r.created_at > now() - interval '90 days' and :key = any(r.bullet_keys)
    order by r.created_at desc
    limit 1000
) r
cross join lateral (
    select t.id, t.effective_outcome
    from traces t
    where t.tenant_id = :tenant and t.retrieval_id = r.id and t.effective_outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at, t.id
    limit 1
) t

-- name: unfinished_runs
-- Those of some runs that are queued or running.
select r.id from runs r where r.tenant_id = :tenant and r.id = any(:runs) and r.state in ('queued', 'running')

-- Whether a trace of a playbook is evaluated or reflected on now or next, which may give the playbook another lesson. Of the unfinished
-- runs, the 256 that are next are read, by runs_unfinished_idx.
-- name: is_reflecting
with unfinished as (
    select r.tenant_id, r.trace_id
    from runs r
    where r.tenant_id = :tenant and r.state in ('queued', 'running') and (r.state = 'queued' or r.lease_until > statement_timestamp())
        and r.kind in ('evaluate', 'reflect') and r.id is distinct from cast(:except_run as uuid)
    order by r.updated_at limit 256
)
select exists (
    select from unfinished u
    join traces t on t.tenant_id = u.tenant_id and t.id = u.trace_id
    where t.tenant_id = :tenant and t.project_id = :project and t.playbook = :playbook
)
