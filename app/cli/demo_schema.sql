-- The runtime tables of SymmetricDS 3.16 on SQLite, as the program itself creates them, for `lethe demo`.

CREATE TABLE sym_channel (
  channel_id VARCHAR(128) not null,
  processing_order INTEGER default 1 not null,
  max_batch_size INTEGER default 1000 not null,
  max_batch_to_send INTEGER default 60 not null,
  max_data_to_route INTEGER default 100000 not null,
  extract_period_millis INTEGER default 0 not null,
  enabled INTEGER default 1 not null,
  use_old_data_to_route INTEGER default 1 not null,
  use_row_data_to_route INTEGER default 1 not null,
  use_pk_data_to_route INTEGER default 1 not null,
  reload_flag INTEGER default 0 not null,
  file_sync_flag INTEGER default 0 not null,
  contains_big_lob INTEGER default 0 not null,
  batch_algorithm VARCHAR(50) default 'default' not null,
  data_loader_type VARCHAR(50) default 'default' not null,
  description VARCHAR(255),
  queue VARCHAR(25) default 'default' not null,
  max_network_kbps numeric(10,3) default 0.000 not null,
  data_event_action CHAR(1),
  create_time TIMESTAMP,
  last_update_by VARCHAR(50),
  last_update_time TIMESTAMP,
  primary key (channel_id)
);

CREATE TABLE sym_context (
  name VARCHAR(80) not null,
  context_value TEXT,
  create_time TIMESTAMP,
  last_update_time TIMESTAMP,
  primary key (name)
);

CREATE TABLE sym_data (
  data_id INTEGER not null,
  table_name VARCHAR(255) not null,
  event_type CHAR(1) not null,
  row_data TEXT,
  pk_data TEXT,
  old_data TEXT,
  trigger_hist_id INTEGER not null,
  channel_id VARCHAR(128),
  transaction_id VARCHAR(255),
  source_node_id VARCHAR(50),
  external_data VARCHAR(50),
  node_list VARCHAR(255),
  is_prerouted INTEGER default 0 not null,
  create_time TIMESTAMP,
  primary key (data_id)
);

CREATE TABLE sym_data_event (
  data_id INTEGER not null,
  batch_id INTEGER not null,
  create_time TIMESTAMP,
  primary key (data_id, batch_id)
);

CREATE TABLE sym_data_gap (
  start_id INTEGER not null,
  end_id INTEGER not null,
  is_expired INTEGER default 0 not null,
  create_time TIMESTAMP not null,
  last_update_hostname VARCHAR(255),
  primary key (start_id, end_id)
);

CREATE TABLE sym_extract_request (
  request_id INTEGER not null,
  source_node_id VARCHAR(50) default 'default' not null,
  node_id VARCHAR(50) not null,
  queue VARCHAR(128),
  status CHAR(2),
  start_batch_id INTEGER not null,
  end_batch_id INTEGER not null,
  trigger_id VARCHAR(128) not null,
  router_id VARCHAR(50) not null,
  load_id INTEGER,
  table_name VARCHAR(255),
  extracted_rows INTEGER default 0 not null,
  extracted_millis INTEGER default 0 not null,
  transferred_rows INTEGER default 0 not null,
  transferred_millis INTEGER default 0 not null,
  last_transferred_batch_id INTEGER,
  loaded_rows INTEGER default 0 not null,
  loaded_millis INTEGER default 0 not null,
  last_loaded_batch_id INTEGER,
  total_rows INTEGER,
  loaded_time TIMESTAMP,
  parent_request_id INTEGER default 0 not null,
  last_update_time TIMESTAMP,
  create_time TIMESTAMP,
  primary key (request_id, source_node_id)
);

CREATE TABLE sym_incoming_batch (
  batch_id INTEGER not null,
  node_id VARCHAR(50) not null,
  channel_id VARCHAR(128),
  status CHAR(2),
  error_flag INTEGER default 0,
  sql_state VARCHAR(10),
  sql_code INTEGER default 0 not null,
  sql_message TEXT,
  last_update_hostname VARCHAR(255),
  last_update_time TIMESTAMP,
  create_time TIMESTAMP,
  summary VARCHAR(255),
  ignore_count INTEGER default 0 not null,
  byte_count INTEGER default 0 not null,
  load_flag INTEGER default 0,
  extract_count INTEGER default 0 not null,
  sent_count INTEGER default 0 not null,
  load_count INTEGER default 0 not null,
  reload_row_count INTEGER default 0 not null,
  other_row_count INTEGER default 0 not null,
  data_row_count INTEGER default 0 not null,
  extract_row_count INTEGER default 0 not null,
  load_row_count INTEGER default 0 not null,
  data_insert_row_count INTEGER default 0 not null,
  data_update_row_count INTEGER default 0 not null,
  data_delete_row_count INTEGER default 0 not null,
  extract_insert_row_count INTEGER default 0 not null,
  extract_update_row_count INTEGER default 0 not null,
  extract_delete_row_count INTEGER default 0 not null,
  load_insert_row_count INTEGER default 0 not null,
  load_update_row_count INTEGER default 0 not null,
  load_delete_row_count INTEGER default 0 not null,
  network_millis INTEGER default 0 not null,
  filter_millis INTEGER default 0 not null,
  load_millis INTEGER default 0 not null,
  router_millis INTEGER default 0 not null,
  extract_millis INTEGER default 0 not null,
  transform_extract_millis INTEGER default 0 not null,
  transform_load_millis INTEGER default 0 not null,
  load_id INTEGER,
  common_flag INTEGER default 0,
  fallback_insert_count INTEGER default 0 not null,
  fallback_update_count INTEGER default 0 not null,
  conflict_win_count INTEGER default 0 not null,
  conflict_lose_count INTEGER default 0 not null,
  ignore_row_count INTEGER default 0 not null,
  missing_delete_count INTEGER default 0 not null,
  skip_count INTEGER default 0 not null,
  failed_row_number INTEGER default 0 not null,
  failed_line_number INTEGER default 0 not null,
  failed_data_id INTEGER default 0 not null,
  bulk_loader_flag INTEGER default 0,
  primary key (batch_id, node_id)
);

CREATE TABLE sym_incoming_error (
  batch_id INTEGER not null,
  node_id VARCHAR(50) not null,
  failed_row_number INTEGER not null,
  failed_line_number INTEGER default 0 not null,
  target_catalog_name VARCHAR(255),
  target_schema_name VARCHAR(255),
  target_table_name VARCHAR(255) not null,
  event_type CHAR(1) not null,
  binary_encoding VARCHAR(10) default 'HEX' not null,
  column_names TEXT not null,
  pk_column_names TEXT not null,
  row_data TEXT,
  old_data TEXT,
  cur_data TEXT,
  resolve_data TEXT,
  resolve_ignore INTEGER default 0,
  conflict_id VARCHAR(50),
  create_time TIMESTAMP,
  last_update_by VARCHAR(50),
  last_update_time TIMESTAMP not null,
  primary key (batch_id, node_id, failed_row_number)
);

CREATE TABLE sym_lock (
  lock_action VARCHAR(50) not null,
  lock_type VARCHAR(50) not null,
  locking_server_id VARCHAR(255),
  lock_time TIMESTAMP,
  shared_count INTEGER default 0 not null,
  shared_enable INTEGER default 0 not null,
  last_lock_time TIMESTAMP,
  last_locking_server_id VARCHAR(255),
  primary key (lock_action)
);

CREATE TABLE sym_node (
  node_id VARCHAR(50) not null,
  node_group_id VARCHAR(50) not null,
  external_id VARCHAR(255) not null,
  sync_enabled INTEGER default 0,
  sync_url VARCHAR(255),
  schema_version VARCHAR(50),
  symmetric_version VARCHAR(50),
  config_version VARCHAR(50),
  database_type VARCHAR(50),
  database_version VARCHAR(50),
  database_name VARCHAR(50),
  batch_to_send_count INTEGER default 0,
  batch_in_error_count INTEGER default 0,
  batch_last_successful TIMESTAMP,
  data_rows_to_send_count INTEGER default 0,
  data_rows_loaded_count INTEGER default 0,
  oldest_load_time TIMESTAMP,
  most_recent_active_table VARCHAR(255),
  purge_outgoing_last_run_ms INTEGER default 0,
  purge_outgoing_last_finish TIMESTAMP,
  purge_outgoing_average_ms INTEGER,
  routing_last_run_ms INTEGER,
  routing_last_finish TIMESTAMP,
  routing_average_run_ms INTEGER default 0,
  sym_data_size INTEGER,
  created_at_node_id VARCHAR(50),
  deployment_type VARCHAR(50),
  deployment_sub_type VARCHAR(50),
  primary key (node_id)
);

CREATE TABLE sym_outgoing_batch (
  batch_id INTEGER not null,
  node_id VARCHAR(50) not null,
  channel_id VARCHAR(128),
  status CHAR(2),
  error_flag INTEGER default 0,
  sql_state VARCHAR(10),
  sql_code INTEGER default 0 not null,
  sql_message TEXT,
  last_update_hostname VARCHAR(255),
  last_update_time TIMESTAMP,
  create_time TIMESTAMP,
  summary VARCHAR(255),
  ignore_count INTEGER default 0 not null,
  byte_count INTEGER default 0 not null,
  load_flag INTEGER default 0,
  extract_count INTEGER default 0 not null,
  sent_count INTEGER default 0 not null,
  load_count INTEGER default 0 not null,
  reload_row_count INTEGER default 0 not null,
  other_row_count INTEGER default 0 not null,
  data_row_count INTEGER default 0 not null,
  extract_row_count INTEGER default 0 not null,
  load_row_count INTEGER default 0 not null,
  data_insert_row_count INTEGER default 0 not null,
  data_update_row_count INTEGER default 0 not null,
  data_delete_row_count INTEGER default 0 not null,
  extract_insert_row_count INTEGER default 0 not null,
  extract_update_row_count INTEGER default 0 not null,
  extract_delete_row_count INTEGER default 0 not null,
  load_insert_row_count INTEGER default 0 not null,
  load_update_row_count INTEGER default 0 not null,
  load_delete_row_count INTEGER default 0 not null,
  network_millis INTEGER default 0 not null,
  filter_millis INTEGER default 0 not null,
  load_millis INTEGER default 0 not null,
  router_millis INTEGER default 0 not null,
  extract_millis INTEGER default 0 not null,
  transform_extract_millis INTEGER default 0 not null,
  transform_load_millis INTEGER default 0 not null,
  load_id INTEGER,
  common_flag INTEGER default 0,
  fallback_insert_count INTEGER default 0 not null,
  fallback_update_count INTEGER default 0 not null,
  conflict_win_count INTEGER default 0 not null,
  conflict_lose_count INTEGER default 0 not null,
  ignore_row_count INTEGER default 0 not null,
  missing_delete_count INTEGER default 0 not null,
  skip_count INTEGER default 0 not null,
  total_extract_millis INTEGER default 0 not null,
  total_load_millis INTEGER default 0 not null,
  extract_job_flag INTEGER default 0,
  extract_start_time TIMESTAMP,
  transfer_start_time TIMESTAMP,
  load_start_time TIMESTAMP,
  failed_data_id INTEGER default 0 not null,
  failed_line_number INTEGER default 0 not null,
  create_by VARCHAR(255),
  bulk_loader_flag INTEGER default 0,
  primary key (batch_id, node_id)
);

CREATE TABLE sym_sequence (
  sequence_name VARCHAR(50) not null,
  current_value INTEGER default 0 not null,
  increment_by INTEGER default 1 not null,
  min_value INTEGER default 1 not null,
  max_value INTEGER default 9999999999 not null,
  cycle_flag INTEGER default 0,
  cache_size INTEGER default 0 not null,
  create_time TIMESTAMP,
  last_update_by VARCHAR(50),
  last_update_time TIMESTAMP not null,
  primary key (sequence_name)
);

CREATE TABLE sym_trigger_hist (
  trigger_hist_id INTEGER not null,
  trigger_id VARCHAR(128) not null,
  source_table_name VARCHAR(255) not null,
  source_catalog_name VARCHAR(255),
  source_schema_name VARCHAR(255),
  name_for_update_trigger VARCHAR(255),
  name_for_insert_trigger VARCHAR(255),
  name_for_delete_trigger VARCHAR(255),
  table_hash INTEGER default 0 not null,
  trigger_row_hash INTEGER default 0 not null,
  trigger_template_hash INTEGER default 0 not null,
  column_names TEXT not null,
  pk_column_names TEXT not null,
  is_missing_pk INTEGER default 0 not null,
  last_trigger_build_reason CHAR(1) not null,
  error_message TEXT,
  create_time TIMESTAMP not null,
  inactive_time TIMESTAMP,
  primary key (trigger_hist_id)
);

CREATE UNIQUE INDEX sym_idx_d_channel_id on sym_data (data_id, channel_id);

CREATE INDEX sym_idx_de_batchid on sym_data_event (batch_id);

CREATE INDEX sym_idx_er_ld_src_nd on sym_extract_request (load_id, source_node_id);

CREATE INDEX sym_idx_er_src_nd_st on sym_extract_request (source_node_id, status);

CREATE INDEX sym_idx_ib_time_status on sym_incoming_batch (create_time, status);

CREATE INDEX sym_idx_ib_in_error on sym_incoming_batch (error_flag);

CREATE INDEX sym_idx_ob_node_status on sym_outgoing_batch (node_id, status, channel_id);

CREATE INDEX sym_idx_ob_status on sym_outgoing_batch (status);

CREATE INDEX sym_idx_ob_in_error on sym_outgoing_batch (error_flag);

CREATE INDEX sym_idx_trigg_hist_1 on sym_trigger_hist (trigger_id, inactive_time);

CREATE TABLE sym_parameter (
  external_id VARCHAR(255) not null,
  node_group_id VARCHAR(50) not null,
  param_key VARCHAR(80) not null,
  param_value TEXT,
  create_time TIMESTAMP,
  last_update_by VARCHAR(50),
  last_update_time TIMESTAMP,
  primary key (external_id, node_group_id, param_key)
);
