-- Turns between tenants: a ticket knows its lane, which is its tenant, and the head of each lane is one step in an index away.
alter table pgqueuer add column lane uuid generated always as (substring(encode(payload, 'escape') for 36)::uuid) stored;
create index pgqueuer_turns_idx on pgqueuer (lane, execute_after, id) where status = 'queued';

-- Orders in which nobody takes tickets any more.
drop index pgqueuer_ep_prio_id_idx;
drop index pgqueuer_priority_id_id1_idx;
drop index pgqueuer_updated_id_id1_idx;

-- Every row is soon dead: a vacuum that waits for a fifth of the table would come too late.
alter table pgqueuer set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
