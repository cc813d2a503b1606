-- Tickets that are due, taken in turns: the tenant that holds the fewest of them comes first, whatever the others have waiting.
-- A lane is a tenant. Heads of lanes are found one after the other in pgqueuer_turns_idx, so the cost grows with the number of
-- tenants that wait and not with the tickets they have.
--   $1 who takes, $2 its seats, $3 how many of them one tenant may have, $4 after how long without a heartbeat a holder is dead
with recursive
abandoned as (  -- back in its lane, to be taken at the next look
    update pgqueuer set status = 'queued', queue_manager_id = null, updated = now()
    where id in (
        select id from pgqueuer
        where status = 'picked' and heartbeat < now() - $4::interval
        order by heartbeat limit $2::bigint for update skip locked
    )
    returning id
),
held as materialized (
    select lane, count(*) everywhere, count(*) filter (where queue_manager_id = $1::uuid) here
    from pgqueuer
    where status = 'picked' and heartbeat >= now() - $4::interval
    group by lane
),
room as materialized (select ($2::bigint - coalesce(sum(here), 0))::bigint seats from held),
heads (lane, execute_after, created) as (
    (
        select lane, execute_after, created from pgqueuer
        where status = 'queued' and lane is not null and (select seats from room) > 0
        order by lane, execute_after limit 1
    )
    union all
    select next.lane, next.execute_after, next.created
    from heads
    cross join lateral (
        select lane, execute_after, created from pgqueuer q
        where q.status = 'queued' and q.lane > heads.lane
        order by q.lane, q.execute_after limit 1
    ) next
),
turns as materialized (  -- two more than there are seats, because another worker may be looking at the same ones
    select heads.lane, coalesce(held.everywhere, 0) held, $3::bigint - coalesce(held.here, 0) free
    from heads left join held using (lane)
    where heads.execute_after <= now() and coalesce(held.here, 0) < $3::bigint
    order by held, heads.created  -- not by what is due: a chain's place in line counts within its tenant alone
    limit (select seats from room) + 2
),
locked as (
    select ticket.id, turns.held, ticket.execute_after
    from turns
    cross join lateral (
        select q.id, q.execute_after from pgqueuer q
        where q.status = 'queued' and q.lane = turns.lane and q.execute_after <= now()
        order by q.execute_after, q.id
        limit least(turns.free, (select ceil(max(room.seats)::numeric / count(*))::bigint from room, turns))
        for update skip locked
    ) ticket
),
chosen as (select id from locked order by held, execute_after, id limit (select seats from room)),
taken as (
    update pgqueuer q
    set status = 'picked', updated = now(), heartbeat = now(), queue_manager_id = $1::uuid
    from chosen where q.id = chosen.id
    returning q.*
)
select * from taken order by execute_after, id
