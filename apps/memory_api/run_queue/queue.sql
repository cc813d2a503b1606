-- name: take_tickets
-- Take due tickets. The tenant with the fewest taken tickets comes first, however many tickets the other tenants have queued.
-- A lane holds the tickets of one tenant. The recursive query finds the head of each lane in pgqueuer_lane_execute_after_idx, so the cost grows
-- with the number of tenants that have queued tickets and not with the number of tickets. Each row has the seconds until the next delayed
-- ticket is due; without a ticket to take, that is the only column of the only row.
--   $1 ID of the worker, $2 its slots, $3 slots that one tenant may use, $4 time without a heartbeat after which a worker is dead
with recursive
abandoned as (  -- tickets of dead workers go back to their lanes and are taken at the next poll
    update pgqueuer set status = 'queued', queue_manager_id = null, updated = now()
    where id in (
        select id from pgqueuer
        where status = 'picked' and heartbeat < now() - $4::interval
        order by heartbeat limit $2::bigint for update skip locked
    )
    returning id
),
taken_counts as materialized (
    select lane, count(*) by_all_workers, count(*) filter (where queue_manager_id = $1::uuid) by_this_worker
    from pgqueuer
    where status = 'picked' and heartbeat >= now() - $4::interval
    group by lane
),
free_slots as materialized (select ($2::bigint - coalesce(sum(by_this_worker), 0))::bigint count from taken_counts),
lane_heads (lane, execute_after, created) as (
    (
        select lane, execute_after, created from pgqueuer
        where status = 'queued' and lane is not null and (select count from free_slots) > 0
        order by lane, execute_after limit 1
    )
    union all
    select next.lane, next.execute_after, next.created
    from lane_heads
    cross join lateral (
        select lane, execute_after, created from pgqueuer q
        where q.status = 'queued' and q.lane > lane_heads.lane
        order by q.lane, q.execute_after limit 1
    ) next
),
chosen_lanes as materialized (  -- two more than there are free slots, because another worker may lock tickets of the same lanes
    select h.lane, coalesce(t.by_all_workers, 0) taken_count, $3::bigint - coalesce(t.by_this_worker, 0) free_count
    from lane_heads h left join taken_counts t using (lane)
    where h.execute_after <= now() and coalesce(t.by_this_worker, 0) < $3::bigint
    order by taken_count, h.created  -- not execute_after: the queue position of a chain counts only within its tenant
    limit (select count from free_slots) + 2
),
locked_tickets as (
    select ticket.id, l.taken_count, ticket.execute_after
    from chosen_lanes l
    cross join lateral (
        select q.id, q.execute_after from pgqueuer q
        where q.status = 'queued' and q.lane = l.lane and q.execute_after <= now()
        order by q.execute_after, q.id
        limit least(l.free_count, (select ceil(max(f.count)::numeric / count(*))::bigint from free_slots f, chosen_lanes))
        for update skip locked
    ) ticket
),
chosen_tickets as (
    select id from locked_tickets order by taken_count, execute_after, id limit (select count from free_slots)
),
taken_tickets as (
    update pgqueuer q
    set status = 'picked', updated = now(), heartbeat = now(), queue_manager_id = $1::uuid
    from chosen_tickets c where q.id = c.id
    returning q.*
)
select t.*, n.due_in next_due_in
from (select extract(epoch from min(execute_after) - now())::float8 due_in from lane_heads where execute_after > now()) n
left join taken_tickets t on true
order by t.execute_after, t.id

-- name: enqueue
-- Add tickets in the caller's transaction. $1 their payloads, $2 their enqueue times, $3 delay until they are due, or null,
-- $4 the trace to continue, or null.
insert into pgqueuer (priority, entrypoint, payload, execute_after, status, headers)
select 0, 'run', payload, coalesce(now() + $3::interval, least(enqueued_at, clock_timestamp())), 'queued',
       case when $4::text is not null then jsonb_build_object('otel', jsonb_build_object('traceparent', $4::text)) end
from unnest($1::bytea[], $2::timestamptz[]) with ordinality as ticket (payload, enqueued_at, position)
order by position

-- name: queue_figures
-- Tickets by state: due, delayed (a retry that waits) and running. Age in seconds: since a ticket was due, since it was queued, since it was taken.
select 'due' state, count(*) count, extract(epoch from now() - min(execute_after))::float8 age
from pgqueuer where status = 'queued' and entrypoint = 'run' and execute_after <= now()
union all
select 'delayed', count(*), extract(epoch from now() - min(created))::float8
from pgqueuer where status = 'queued' and entrypoint = 'run' and execute_after > now()
union all
select 'running', count(*), extract(epoch from now() - min(updated))::float8
from pgqueuer where status = 'picked'

-- name: return_ticket
-- Put a taken ticket back into the queue. $1 its ID, $2 delay until it is due, $3 ID of the worker that took it.
update pgqueuer
set status = 'queued', queue_manager_id = null, attempts = attempts + 1, updated = now(), execute_after = now() + $2::interval
where id = $1 and queue_manager_id = $3

-- name: delete_tickets
delete from pgqueuer where id = any($1::bigint[])

-- name: count_queued_tickets
-- Count the queued tickets in the lanes from $1 to $2, at most up to $3.
select count(*) from (
    select from pgqueuer where status = 'queued' and lane between $1::uuid and $2::uuid limit $3
) queued

-- name: mark_upkeep_due
-- A tenant is active: its upkeep is due within $2, also if it is running now. $1 the tenant.
insert into upkeep_schedule as u (lane, due_at) values ($1::uuid, now() + $2::interval)
on conflict (lane) do update
set active_at = now(), due_at = case when u.claimed_until > now() then now() + $2::interval else least(u.due_at, now() + $2::interval) end

-- name: claim_due_upkeep
-- Take the tenants whose upkeep is due, at most $1, the longest due first. Each is taken once, until its upkeep ends or $2 has passed.
update upkeep_schedule u
set claimed_until = now() + $2::interval
where u.lane in (
    select o.lane from upkeep_schedule o
    where o.due_at <= now() and (o.claimed_until is null or o.claimed_until <= now())
    order by o.due_at limit $1 for update skip locked
)
returning u.lane

-- name: finish_upkeep
-- The upkeep of tenant $1 that started at $2 is done, and due again at $3; for an active tenant after $4 at the latest. A tenant that was
-- active meanwhile keeps its earlier time.
update upkeep_schedule u
set claimed_until = null,
    due_at = least(case when u.due_at > $2::timestamptz then u.due_at end,
                   case when u.active_at > now() - interval '2 days' then least($3::timestamptz, now() + $4::interval) else $3 end)
where u.lane = $1::uuid

-- name: drop_upkeep
-- An erased or suspended tenant has no upkeep.
delete from upkeep_schedule where lane = $1::uuid
