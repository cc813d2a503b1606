-- What only a superuser can do, once, before `hansei distribute`. It may run again.
select citus_set_coordinator_host('coordinator', 5432);
select citus_add_node('worker-1', 5432);
select citus_add_node('worker-2', 5432);
alter role hansei_owner bypassrls; -- to copy rows between nodes
